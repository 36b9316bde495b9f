"""The loops in C do what those in Python do: two connections say the same bytes, and are told the same, by either."""

import shutil
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from router.amqp import inbox
from router.amqp.connection import Connection
from router.amqp.format.values import ACCEPTED, RELEASED
from router.amqp.proton import deliveries
from router.amqp.proton.library import ffi
from router.amqp.proton.loops import INTERPRETED, Loops, compiled
from tests.router.amqp.pair import Pair

COMPILED = compiled()
CREDIT = 10_000


def test_they_are_compiled_where_there_is_a_compiler() -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    assert COMPILED is not None, "make setup compiles them"


class Recorded(Pair):
    def __init__(self, frame: int) -> None:
        self.said: list[bytes] = []
        super().__init__(max_frame=frame)

    def _carry(self, source: Connection, target: Connection, now: float) -> bool:
        with patch.object(source, "data_to_send", self._noting(source)):
            return super()._carry(source, target, now)

    def _noting(self, source: Connection) -> Any:
        def noted() -> bytes:
            self.said.append(data := original())
            return data

        original = source.data_to_send
        return noted


@frozen
class Sent:
    sizes: tuple[int, ...]
    first: bytes = b"\x00"
    settled: bool = False


@frozen
class Told:
    """By the receiver, of what it has and has not settled: every so manieth."""

    every: int
    state: int
    settles: bool


@frozen
class Settled:
    """By the sender: so many of what it was told of."""

    count: int


Step = Sent | Told | Settled


def play(loops: Loops, steps: Sequence[Step], frame: int = 65_536) -> list[Any]:
    """All that was said and heard. What is done between two steps is read at once."""
    with patch.object(inbox, "LOOPS", loops), patch.object(deliveries, "LOOPS", loops):
        pair, numbers = Recorded(frame), iter(range(1_000_000))
        sender, receiver = pair.sending(credit=CREDIT)
        sent: dict[Any, bytes] = {}
        for step in steps:
            if isinstance(step, Sent):
                tags = [b"%d" % next(numbers) for _ in step.sizes]
                messages = [step.first * size for size in step.sizes]
                handles = sender.send_many(tags, messages, settled=step.settled)
                sent |= dict(zip(handles, tags, strict=False))
            elif isinstance(step, Told):
                here = [handle for handle in pair.there.deliveries if handle is not None][:: step.every]
                receiver.update_many(here, step.state, step.settles)
                if step.settles:
                    pair.there.deliveries = [handle for handle in pair.there.deliveries if handle not in set(here)]
            else:
                known = [handle for handle, _, _ in pair.here.outcomes if handle in sent][: step.count]
                sender.settle_many(list(dict.fromkeys(known)))
                pair.there.deliveries = []  # whose they are is told by what is said
                for handle in known:
                    sent.pop(handle, None)
            pair.pump()
            heard = [(sent.get(handle), state, is_over) for handle, state, is_over in pair.here.outcomes]
            pair.said.append(repr(heard).encode())
            pair.here.outcomes = [row for row in pair.here.outcomes if row[0] in sent]
        there = pair.there
        news = [row[1:] for row in there.outcomes]
        return [pair.said, there.tags, there.messages, there.presettled, news, pair.errors, sender.credit]


SIZES = st.one_of(
    st.integers(0, 40), st.sampled_from([4095, 4096, 4097, 60_000, 65_535, 70_000, 262_143, 262_144, 300_000])
)
STEPS = st.one_of(
    st.builds(
        Sent, st.lists(SIZES, min_size=1, max_size=12).map(tuple), st.sampled_from([b"\x00", b"\xff"]), st.booleans()
    ),
    st.builds(Told, st.integers(1, 3), st.sampled_from([ACCEPTED, RELEASED]), st.booleans()),
    st.builds(Settled, st.integers(0, 20)),
)


@pytest.mark.skipif(COMPILED is None, reason="loops.c is not compiled")
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=12), frame=st.sampled_from([512, 4096, 65_536, 524_288]))
def test_both_do_the_same(steps: list[Step], frame: int) -> None:
    assert COMPILED is not None
    assert play(COMPILED, steps, frame) == play(INTERPRETED, steps, frame)


@pytest.mark.skipif(COMPILED is None, reason="loops.c is not compiled")
@pytest.mark.parametrize(
    "sizes",
    [(1,) * 9000, (4000,) * 200, (0, 5) * 30],
    ids=["more than at once", "more than there is room for", "empty"],
)
def test_both_do_the_same_with_many(sizes: tuple[int, ...]) -> None:
    assert COMPILED is not None
    steps: list[Step] = [
        Sent(sizes),
        Told(1, ACCEPTED, settles=False),
        Settled(10_000),
        Sent(sizes[:100], settled=True),
    ]
    assert play(COMPILED, steps) == play(INTERPRETED, steps)
    assert len(play(COMPILED, steps)[1]) == len(sizes) + len(sizes[:100])


def test_a_module_of_other_sources_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stale:
        ffi = ffi

        class lib:
            @staticmethod
            def source() -> Any:
                return ffi.new("char[]", b"0" * 64)

    monkeypatch.setattr("router.amqp.proton.loops.import_module", lambda name: Stale)
    assert compiled() is None
