"""The output of a connection: takes it from proton, adds the fields that proton cannot write, and ends it with the
close.

Proton writes its close late, after messages for which the peer has no room, or not at all, or with a condition that
AMQP does not have. So our own close replaces it (`farewell`).
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from router.amqp.endpoints import Endpoints
from router.amqp.format.codec import Described, Symbol, encode
from router.amqp.format.errors import INTERNAL_ERROR, AmqpError
from router.amqp.format.performative import BEGIN, CLOSE, ERROR, build, code_of, frames_of
from router.amqp.format.values import Handle
from router.amqp.frames.echo import Echoes
from router.amqp.frames.tap import Tap
from router.amqp.proton.engine import Engine
from router.amqp.proton.restated import Restated
from router.amqp.sessions import Sessions

_ROOM: Final = 64  # bytes of a close that are not its condition and description


class OutputHost(Protocol):
    """The connection, as its output uses it."""

    closing: bool
    closed: bool
    settling: set[Handle]


class Output:
    """The output of one connection."""

    def __init__(
        self,
        host: OutputHost,
        engine: Engine,
        tap: Tap,
        sessions: Sessions,
        endpoints: Endpoints,
        echoes: Echoes,
        restated: Restated,
    ) -> None:
        self._host = host
        self._engine = engine
        self._tap = tap
        self._sessions = sessions
        self._endpoints = endpoints
        self._echoes = echoes
        self._restated = restated
        self._taken: list[bytes] = []
        self._has_spoken = False  # True once some output was written
        self._farewell = b""
        self._is_last = False  # True once the close was written
        # True if the engine has failed while it wrote, so that some of its output may be lost.
        self._has_gap = False
        self.failure: AmqpError | None = None
        """The reason why there is no more output: proton has stopped writing without an error, or the engine has failed
        while it wrote. This ends only this connection."""

    def take(self) -> bytes:
        """Return all output so far. After a failure, this is only the close."""
        if self._is_last:
            return b""
        data = self._take_all() if not self._has_gap else b""
        self._has_spoken = self._has_spoken or bool(data)
        ends = self._host.closing or self._host.closed
        return self._closed(data) if ends and self._has_spoken else data

    def _take_all(self) -> bytes:
        # `_has_gap` stays True only if one of the next calls raises an exception.
        self._has_gap = True
        self._pull()
        data, self._taken = b"".join((*self._taken, self._echoes.flows())), []
        self._free()
        self._sessions.written()
        self._has_gap = False
        return data

    def flush(self, asked: Sequence[Any] = ()) -> bytes:
        """Take proton's output, with a flow of each session of `asked` at its end."""
        if self._has_gap:
            return b""
        # `_has_gap` stays True only if one of the next calls raises an exception.
        self._has_gap = True
        data = self._pull(asked)
        self._free()
        self._has_gap = False
        return data

    def _pull(self, asked: Sequence[Any] = ()) -> bytes:
        rewrite = self._tap.additions.rewrite
        data = self._tap.settlements.frames() + rewrite(self._engine.pull())
        while self._endpoints.attach_postponed():
            data += rewrite(self._engine.pull())
        if asked:
            data += self._engine.pull_session_flows(asked)
        self._check(data)
        if data:
            self._taken.append(data)
        return data

    def _free(self) -> None:
        """Free settled deliveries, and ended sessions and links. Proton then has more output. It is taken with the next
        output, because `Echoes.flows` expects only flows."""
        if self._host.settling:
            self._restated.settled(len(self._host.settling))
            self._host.settling.clear()
        self._sessions.free()

    def _check(self, data: bytes) -> None:
        """Set `failure` if a begin or an attach of ours is missing from the output: proton writes it at once, or
        never."""
        if self._endpoints.begun:
            self._endpoints.begun -= sum(code_of(frame) == BEGIN for frame in frames_of(data))
        additions = self._tap.additions
        self.failure = self.failure or additions.misfit
        if not (self._endpoints.begun or additions.owes):
            return
        if self._engine.has_opened and not self._host.closing and not self._host.closed:
            self.failure = AmqpError(INTERNAL_ERROR, "the AMQP engine cannot write a frame of a session or link")

    def farewell(self, condition: str | None, description: str) -> None:
        """Set the condition of the close; only the first call counts."""
        room = self._tap.additions.max_frame - _ROOM - len(condition or "")
        told = description.encode()[: max(0, room)].decode(errors="ignore")
        error = [encode(Described(ERROR, [Symbol(condition), told]))] if condition is not None else []
        self._farewell = self._farewell or build(b"\0\0", CLOSE, error)

    def _closed(self, data: bytes) -> bytes:
        """The output with our close frame, which replaces proton's close. If proton writes none, ours is added when the
        connection is over.
        """
        frames = list(frames_of(data))
        is_protons = bool(frames) and code_of(frames[-1]) == CLOSE
        self._is_last = is_protons or (self._host.closed and bool(self._farewell))
        if not self._is_last or not self._farewell:
            return data
        return (data.removesuffix(frames[-1]) if is_protons else data) + self._farewell
