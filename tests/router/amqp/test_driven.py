"""When connections write: as the step ends that gave them something."""

import socket
from collections.abc import Callable

import pytest
import trio

from router.amqp.driven import Outbound
from router.amqp.pipe import pipe_of


class Writer:
    def __init__(self, done: list[str], as_it_writes: Callable[[], None] = lambda: None) -> None:
        self._done, self._as_it_writes = done, as_it_writes

    def flush(self) -> None:
        self._done.append("writes")
        self._as_it_writes()

    def request_write(self) -> None:
        self._done.append("is roused")


def test_who_is_woken_in_a_step_writes_once_as_it_ends() -> None:
    outbound, done = Outbound(), list[str]()
    writer = Writer(done)
    with outbound:
        outbound.wake(writer)
        outbound.wake(writer)
        done.append("the step")
    assert done == ["the step", "writes"]


def test_who_is_woken_outside_of_steps_writes_later() -> None:
    outbound, done = Outbound(), list[str]()
    outbound.wake(Writer(done))
    assert done == ["is roused"]


def test_who_is_woken_as_another_writes_does_so_later_as_no_step_may_last() -> None:
    outbound, done = Outbound(), list[str]()
    with outbound:
        outbound.wake(Writer(done, as_it_writes=lambda: outbound.wake(Writer(done))))
    assert done == ["writes", "is roused"]


def test_after_a_fault_nothing_leaves() -> None:
    """What it would tell of may not be written down."""
    outbound, done = Outbound(), list[str]()
    with pytest.raises(ZeroDivisionError), outbound:
        outbound.wake(Writer(done))
        raise ZeroDivisionError
    with outbound:
        pass
    assert not done


async def test_a_socket_that_was_closed_here_is_told_as_trio_tells_it() -> None:
    one, other = socket.socketpair()
    one.setblocking(False)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(one))
    pipe = pipe_of(stream)
    with other:
        await stream.aclose()
        assert pipe.write(memoryview(b"x")) == 0
        with pytest.raises(trio.ClosedResourceError):
            await pipe.write_on(memoryview(b"x"))
        with pytest.raises(trio.ClosedResourceError):
            await pipe.read(1)
