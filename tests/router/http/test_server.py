"""HTTP on one connection: what is read, what is refused, and what all of it is bounded by."""

from collections.abc import Callable
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair

from router.http.exchange import WebAnswer, WebRequest, text_answer
from router.http.server import ANSWER_S, EVENT_S, HEAD_S, IDLE_S, LINGER_S, MOST_HEAD, PIECE, WebConnection

GET = b"GET /page?key=k%201 HTTP/1.1\r\nHost: localhost\r\n\r\n"


LONGEST = b"GET /page HTTP/1.1\r\nHost: a\r\nX: ".ljust(MOST_HEAD - 4, b"x") + b"\r\n\r\n"
"""A head of as many bytes as one may have."""


class Served:
    """A connection to a server that answers as it is told to, and what it was asked."""

    def __init__(self, nursery: trio.Nursery, answer: WebAnswer) -> None:
        self.stream, theirs = lockstep_stream_pair()
        self.asked: list[WebRequest] = []
        self.ended = trio.Event()
        self._reply = answer
        self._theirs = theirs
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        async with self._theirs:
            await WebConnection(self._theirs, self._answer).run()
        self.ended.set()

    async def _answer(self, request: WebRequest) -> WebAnswer:
        self.asked.append(request)
        return self._reply

    async def told(self, count: int = 1) -> bytes:
        """So many answers without a body that is longer than a line."""
        data = b""
        while data.count(b"HTTP/1.1") < count or not data.endswith(b"\n"):
            data += await self.stream.receive_some()
        return data

    async def rest(self) -> bytes:
        return b"".join([part async for part in self.stream])


Serve = Callable[[WebAnswer], Served]


@pytest.fixture
def serve(nursery: trio.Nursery) -> Serve:
    return lambda answer: Served(nursery, answer)


@pytest.mark.parametrize("piece", [1000, MOST_HEAD, 3 * MOST_HEAD])
async def test_a_head_may_have_so_many_bytes_however_they_come(
    serve: Serve, autojump_clock: MockClock, piece: int
) -> None:
    served, data = serve(text_answer(200, "well")), 3 * LONGEST
    async with trio.open_nursery() as sending:

        async def send() -> None:
            for at in range(0, len(data), piece):
                await served.stream.send_all(data[at : at + piece])

        sending.start_soon(send)
        assert (await served.told(3)).count(b"HTTP/1.1 200 ") == 3


async def test_requests_come_one_after_the_other_on_one_connection(serve: Serve, autojump_clock: MockClock) -> None:
    served = serve(text_answer(200, "well"))
    for _ in range(3):
        await served.stream.send_all(GET)
        reply = await served.told()
        assert reply.startswith(b"HTTP/1.1 200 ") and reply.endswith(b"\r\n\r\nwell\n")
    assert [(one.method, one.path, one.query) for one in served.asked] == [("GET", "/page", {"key": "k 1"})] * 3
    assert served.asked[0].headers == {"host": "localhost"}


async def test_a_request_of_http_1_0_needs_no_host_and_ends_its_connection(
    serve: Serve, autojump_clock: MockClock
) -> None:
    served = serve(text_answer(200, "well"))
    await served.stream.send_all(b"GET /healthz HTTP/1.0\r\n\r\n")
    reply = await served.rest()
    assert reply.startswith(b"HTTP/1.1 200 ") and reply.endswith(b"\r\n\r\nwell\n")
    assert [(one.path, one.headers) for one in served.asked] == [("/healthz", {})]


async def test_an_answer_that_says_so_is_the_last_of_its_connection(serve: Serve, autojump_clock: MockClock) -> None:
    served = serve(text_answer(401, "no", ("Connection", "close")))
    await served.stream.send_all(2 * GET)
    assert (await served.rest()).count(b"HTTP/1.1") == 1
    await served.stream.aclose()
    await served.ended.wait()
    assert len(served.asked) == 1


async def test_head_is_answered_without_the_body_and_with_its_length(serve: Serve, autojump_clock: MockClock) -> None:
    served = serve(text_answer(200, "well"))
    await served.stream.send_all(GET.replace(b"GET", b"HEAD"))
    reply = await served.told()
    assert b"Content-Length: 5\r\n" in reply and reply.endswith(b"\r\n\r\n")


async def test_head_of_a_stream_of_events_is_its_head_alone(serve: Serve, autojump_clock: MockClock) -> None:
    async def next_event() -> bytes:
        raise AssertionError("no event is asked for")

    served = serve(WebAnswer(200, content_type="text/event-stream", events=next_event))
    for _ in range(2):
        await served.stream.send_all(GET.replace(b"GET", b"HEAD"))
        reply = await served.told()
        assert b"Content-Type: text/event-stream\r\n" in reply and reply.endswith(b"\r\n\r\n")
        assert b"Content-Length" not in reply


async def test_a_fault_of_ours_ends_the_connection_alone(
    serve: Serve, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async def next_event() -> bytes:
        raise LookupError("no such event")

    served = serve(WebAnswer(200, content_type="text/event-stream", events=next_event))
    await served.stream.send_all(GET)
    assert (await served.rest()).startswith(b"HTTP/1.1 200 ")
    await served.ended.wait()
    assert "no such event" in caplog.text


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # it says no host
        (b"GET /" + b"x" * MOST_HEAD + b" HTTP/1.1\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * MOST_HEAD, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (LONGEST.replace(b"X: x", b"X: xx"), 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 413),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"GET /?" + b"a=1&" * 20 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET http://[/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ],
)
async def test_what_is_no_request_of_ours_is_told_so_and_ends_the_connection(
    serve: Serve, autojump_clock: MockClock, sent: bytes, status: int
) -> None:
    served = serve(text_answer(200, "well"))

    async def send() -> None:
        with suppress(trio.BrokenResourceError):
            await served.stream.send_all(sent)

    async with trio.open_nursery() as sending:
        sending.start_soon(send)  # it is answered before all of it was read
        assert (await served.rest()).startswith(b"HTTP/1.1 %d " % status)
    assert served.asked == []


async def test_a_command_is_for_the_site_to_refuse_and_nothing_follows_it(
    serve: Serve, autojump_clock: MockClock
) -> None:
    served = serve(text_answer(405, "expected GET or HEAD"))
    await served.stream.send_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx" + GET)
    assert (await served.rest()).endswith(b"expected GET or HEAD\n")
    assert [request.method for request in served.asked] == ["POST"]


async def test_a_request_has_so_long_to_come_and_a_connection_so_long_to_be_idle(
    serve: Serve, autojump_clock: MockClock
) -> None:
    served, began = serve(text_answer(200, "well")), trio.current_time()
    await served.ended.wait()
    assert trio.current_time() - began == pytest.approx(IDLE_S, abs=LINGER_S + 0.1)
    slow, began = serve(text_answer(200, "well")), trio.current_time()
    await slow.stream.send_all(GET[:10])
    await slow.ended.wait()
    assert trio.current_time() - began == pytest.approx(HEAD_S, abs=LINGER_S + 0.1)


async def test_who_does_not_read_an_answer_is_cut_off(serve: Serve, autojump_clock: MockClock) -> None:
    served = serve(WebAnswer(200, bytes(10 * PIECE)))
    await served.stream.send_all(GET)
    began = trio.current_time()
    await served.ended.wait()
    assert trio.current_time() - began == pytest.approx(ANSWER_S, abs=LINGER_S + 0.1)


async def test_events_leave_one_by_one_and_who_does_not_take_them_is_cut_off(
    serve: Serve, autojump_clock: MockClock
) -> None:
    made: list[float] = []

    async def next_event() -> bytes:
        await trio.sleep(1)
        made.append(trio.current_time())
        return b"data: %d\n\n" % len(made)

    served = serve(WebAnswer(200, content_type="text/event-stream", events=next_event))
    await served.stream.send_all(GET)
    seen = b""
    while b"data: 3\n" not in seen:
        seen += await served.stream.receive_some()
    assert b"Transfer-Encoding: chunked" in seen
    taken, began = len(made), trio.current_time()
    await served.ended.wait()
    assert trio.current_time() - began <= EVENT_S + 1 + LINGER_S + 0.1
    assert len(made) <= taken + 1, "nothing is made for who does not read"


async def test_who_leaves_ends_nothing_else(serve: Serve, autojump_clock: MockClock) -> None:
    served = serve(text_answer(200, "well"))
    await served.stream.send_all(GET)
    await served.stream.aclose()
    with trio.fail_after(1):
        await served.ended.wait()
