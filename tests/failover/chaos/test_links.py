"""What is wrong with a link follows from all faults in force on it."""

from random import Random

import attrs
import pytest
import trio

from failover.chaos.carrier import Impairment
from failover.chaos.links import Links
from failover.chaos.nemesis import condition_of

SILENT, SLOW = Impairment(silent=True), Impairment(latency=0.5)


class Kept(dict[str, Impairment]):
    """What the links were told to become."""

    def carrier(self, name: str) -> "Told":
        return Told(self, name)


@attrs.frozen
class Told:
    kept: Kept
    name: str

    def become(self, condition: Impairment) -> None:
        self.kept[self.name] = condition

    def reset(self) -> None:
        raise AssertionError("nobody is flaky here")


@pytest.fixture
def kept() -> Kept:
    return Kept({name: Impairment() for name in ("a-b", "b-c", "a-c")})


@pytest.fixture
async def links(kept: Kept, nursery: trio.Nursery) -> Links:
    made = Links()
    ends = {name: (name[0], name[2]) for name in kept}
    made.open({ends[name]: kept.carrier(name) for name in kept}, nursery, Random(1))
    return made


def whole(kept: Kept) -> list[str]:
    return [name for name, condition in kept.items() if condition == Impairment()]


async def test_a_link_is_whole_again_when_the_last_fault_on_it_is_over(links: Links, kept: Kept) -> None:
    links.impair(1, ["a-b", "b-c"], SILENT)
    links.impair(2, ["a-b"], SLOW)
    assert whole(kept) == ["a-c"]
    links.mend(1, ["a-b", "b-c"])
    assert whole(kept) == ["b-c", "a-c"]
    links.mend(2, ["a-b"])
    assert whole(kept) == ["a-b", "b-c", "a-c"]


async def test_healing_ends_everything(links: Links, kept: Kept) -> None:
    links.impair(1, links.names, SILENT | SLOW)
    links.heal()
    assert whole(kept) == links.names
    links.mend(1, links.names)


async def test_a_partition_cuts_what_joins_its_sides(links: Links) -> None:
    assert links.between([("a",), ("b", "c")]) == ("a-b", "a-c")
    assert links.between([("a",), ("b",), ("c",)]) == ("a-b", "b-c", "a-c")
    assert links.between([("a", "b", "c")]) == ()
    assert links.of(["c"]) == ("b-c", "a-c")


def test_conditions_add_up() -> None:
    assert Impairment(silent=True, latency=1.0) == SILENT | SLOW | SLOW
    assert Impairment(loss=0.5) | Impairment(loss=0.5) == Impairment(loss=0.75)
    assert Impairment(rate=1e6) == Impairment(rate=2e6) | Impairment(rate=1e6)


@pytest.mark.parametrize(
    ("word", "options", "condition"),
    [
        ("cut", {}, SILENT),
        ("cut", {"how": "reset"}, Impairment(severed=True)),
        ("partition", {}, SILENT),
        ("slow", {"latency": 0.5}, SLOW),
        ("slow", {"latency": 0.5, "jitter": 0.1}, Impairment(latency=0.5, jitter=0.1)),
        ("narrow", {"rate": 8e6}, Impairment(rate=8e6)),
        ("lossy", {"loss": 0.01}, Impairment(loss=0.01)),
        ("flaky", {"resets": 2.0}, Impairment(resets=2.0)),
    ],
)
def test_every_word_about_links_has_its_condition(word: str, options: dict[str, object], condition: Impairment) -> None:
    assert condition_of(word, options) == condition
