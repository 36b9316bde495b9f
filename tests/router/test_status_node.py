"""The node `$status`: what it costs to be looked at has a bound (see its module)."""

from typing import Any

import trio
from trio.testing import MockClock

from router.edge.status_node import PAUSE_S, StatusNode


class Looking:
    """A link from `$status`, as far as the node looks at it."""

    def __init__(self, connection: "Waking", credit: int, *, draining: bool = False) -> None:
        self.connection = connection
        self.is_sender = True
        self.credit = credit
        self.unsent = 0
        self.draining = draining
        self.got: list[float] = []

    def answer(self) -> None:
        pass

    def takes(self, message: bytes) -> bool:
        return True

    def send(self, tag: bytes, message: bytes, *, settled: bool) -> None:
        assert settled
        self.credit -= 1
        self.got.append(trio.current_time())

    def drained(self) -> None:
        if self.draining:
            self.credit = 0


class Waking:
    user = ""

    def wake(self) -> None:
        pass


class Reports:
    def __init__(self, took_s: float = 0.0) -> None:
        self.made: list[float] = []
        self._clock: Any = trio.lowlevel.current_clock()
        self._took_s = took_s

    def __call__(self) -> bytes:
        self.made.append(trio.current_time())
        self._clock.jump(self._took_s)
        return b"{}"


class Everything:
    """Is what all may see."""

    def view(self, report: bytes, user: str) -> bytes:
        return report


async def test_ten_clients_with_credit_without_end_are_told_ten_times_a_second_by_one_report_each_time(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    reports = Reports()
    node = StatusNode(reports, Everything())
    links = [Looking(Waking(), 2**31 - 1) for _ in range(10)]
    nursery.start_soon(node.run)
    for link in links:
        node.attach(link)  # type: ignore[arg-type]
    await trio.sleep(1.05)
    assert len(reports.made) == 11
    assert all(len(link.got) == 11 for link in links)


async def test_a_connection_is_told_on_one_link_at_a_time_and_on_all_in_turn(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    node = StatusNode(Reports(), Everything())
    connection = Waking()
    links = [Looking(connection, 2) for _ in range(3)]
    nursery.start_soon(node.run)
    for link in links:
        node.attach(link)  # type: ignore[arg-type]
    await trio.sleep(10)
    assert len({at for link in links for at in link.got}) == 6
    assert [len(link.got) for link in links] == [2, 2, 2]


async def test_a_report_that_takes_long_is_made_less_often(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    reports = Reports(took_s=0.5)
    node = StatusNode(reports, Everything())
    nursery.start_soon(node.run)
    node.attach(Looking(Waking(), 1000))  # type: ignore[arg-type]
    await trio.sleep(20)
    assert len(reports.made) <= 5


async def test_who_does_not_take_its_report_gets_no_other_and_none_is_made(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    reports = Reports()
    node = StatusNode(reports, Everything())
    link = Looking(Waking(), 1000)
    nursery.start_soon(node.run)
    node.attach(link)  # type: ignore[arg-type]
    await trio.sleep(PAUSE_S / 2)
    link.unsent = 1
    await trio.sleep(10)
    assert len(reports.made) == len(link.got) == 1


async def test_who_drains_gets_one_report_and_gives_the_rest_back(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    node = StatusNode(Reports(), Everything())
    link = Looking(Waking(), 1000, draining=True)
    nursery.start_soon(node.run)
    node.attach(link)  # type: ignore[arg-type]
    await trio.sleep(10)
    assert (len(link.got), link.credit) == (1, 0)


class Small(Looking):
    """It takes no large message."""

    detached = ""

    def takes(self, message: bytes) -> bool:
        return False

    def detach(self, condition: str, description: str) -> None:
        self.detached, self.credit = condition, 0


async def test_a_link_that_does_not_take_so_large_a_report_is_detached(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    node, small = StatusNode(Reports(), Everything()), Small(Waking(), 1)
    nursery.start_soon(node.run)
    node.attach(small)  # type: ignore[arg-type]
    await trio.sleep(10)
    assert small.detached == "amqp:link:message-size-exceeded" and not small.got
