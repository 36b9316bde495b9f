"""What a home holds for each of its publishers (protocol 9.6): what their windows say, and no more than these allow."""

from typing import TYPE_CHECKING

from topic.delivery.record import Record, State, Stream
from topic.delivery.records import sizes

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.router import Router


def check_windows(judge: "Judge", router: "Router") -> None:
    for stream in router.topic.home.streams.values():
        if stream.link is None:
            continue
        window, held = stream.window, sum(sizes(_unsettled(stream)))
        name = stream.identity.container
        judge.check(
            window.held == held, f"6 bytes: {name} has {held} unsettled at {router.name}, {window.held} counted"
        )
        fits = held <= router.knobs.window_bytes or window.unsettled <= 1
        judge.check(fits, f"6 bytes: {name} has {held} unsettled at {router.name}")


def _unsettled(stream: Stream) -> list[Record]:
    return [r for r in (*stream.records.values(), *stream.withheld) if r.state is not State.SETTLED]
