"""What consoles are shown of a router."""

import json
from typing import Any

from trio.testing import MockClock

from router.amqp.format.codec import Raw, decode
from router.management.entity import EntityType
from router.management.looks import SHOWN, Looks
from router.management.recent_events import RecentEvents


def read(look: Raw) -> Any:
    return decode(look.encoded)[0]


async def test_one_look_does_for_all_who_take_one_of_that_age(autojump_clock: MockClock) -> None:
    made = iter(range(10))
    kinds = [EntityType[int](name, {"identity": str}, lambda: [7]) for name in SHOWN.values()]
    events = RecentEvents("a", 1)
    looks = Looks(kinds, lambda: json.dumps(next(made)).encode(), events)
    first = read(looks(0.9))
    assert (first["status"], first["lastEvent"]) == ("0", events.last)
    assert first["totals"] == [{"type": SHOWN["totals"], "identity": "7"}]
    autojump_clock.jump(0.9)
    assert read(looks(0.9)) == first
    autojump_clock.jump(0.1)
    assert read(looks(0.9))["status"] == "1"
    autojump_clock.jump(0.1)
    assert read(looks(0.0))["status"] == "2"
