"""What is wrong with a link follows from all faults in force on it."""

from pathlib import Path
from random import Random

import pytest
import trio

from failover.chaos.links import Links
from failover.chaos.nemesis import condition_of
from failover.chaos.proxy import Impairment
from router.mesh.config import Limits, LinkConfig, LogSettings, RouterConfig, Timing, Topology
from router.mesh.quantities import Address

SILENT, SLOW = Impairment(silent=True), Impairment(latency=0.5)


@pytest.fixture
async def links(nursery: trio.Nursery) -> Links:
    nowhere = Address("127.0.0.1", 9)
    routers = {name: RouterConfig(name, nowhere, nowhere) for name in "abc"}
    ends = (LinkConfig("a", "b"), LinkConfig("b", "c"), LinkConfig("a", "c"))
    made = Links()
    topology = Topology("triangle", routers, ends, (), Timing(), Limits(), LogSettings(), Path("mesh.yaml"))
    await made.open(topology, nursery, Random(1))
    return made


def whole(links: Links) -> list[str]:
    return [name for name in links.names if links._proxies[name].condition == Impairment()]


async def test_a_link_is_whole_again_when_the_last_fault_on_it_is_over(links: Links) -> None:
    links.spoil(1, ["a-b", "b-c"], SILENT)
    links.spoil(2, ["a-b"], SLOW)
    assert whole(links) == ["a-c"]
    links.mend(1, ["a-b", "b-c"])
    assert whole(links) == ["b-c", "a-c"]
    links.mend(2, ["a-b"])
    assert whole(links) == ["a-b", "b-c", "a-c"]


async def test_healing_ends_everything(links: Links) -> None:
    links.spoil(1, links.names, SILENT | SLOW)
    links.heal()
    assert whole(links) == links.names
    links.mend(1, links.names)


async def test_a_partition_cuts_what_joins_its_sides(links: Links) -> None:
    assert links.between([("a",), ("b", "c")]) == ("a-b", "a-c")
    assert links.between([("a",), ("b",), ("c",)]) == ("a-b", "b-c", "a-c")
    assert links.between([("a", "b", "c")]) == ()
    assert links.of(["c"]) == ("b-c", "a-c")


def test_conditions_add_up() -> None:
    assert Impairment(silent=True, latency=1.0) == SILENT | SLOW | SLOW
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
        ("flaky", {"resets": 2.0}, Impairment(resets=2.0)),
    ],
)
def test_every_word_about_links_has_its_condition(word: str, options: dict[str, object], condition: Impairment) -> None:
    assert condition_of(word, options) == condition
