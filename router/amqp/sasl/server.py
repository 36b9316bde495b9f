"""The server's end of SASL: the mechanisms that it offers, and one exchange of the client's choice (AMQP 1.0 5.3).

A refusal does not reveal its reason: the client learns only that it was refused, and the log has the reason.
"""

import hmac
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from router.amqp.format.codec import Described, Raw, Symbol, ubyte
from router.amqp.format.errors import FRAMING_ERROR, UNAUTHORIZED, AmqpError, TurnError
from router.amqp.sasl.layer import (
    AMQP_HEADER,
    CHALLENGE,
    DENIED,
    INIT,
    MECHANISMS,
    OK,
    OUTCOME,
    RESPONSE,
    SASL_HEADER,
    SaslLayer,
    binary,
)
from router.amqp.sasl.scram import Verifier

ANONYMOUS: Final = Symbol("ANONYMOUS")
PLAIN: Final = Symbol("PLAIN")
EXTERNAL: Final = Symbol("EXTERNAL")


class Exchange(Protocol):
    user: str
    """The user that the client names; the proven user once `step` has returned None. Empty: anonymous."""
    final: bytes | None
    """The server's last data, which goes to the client with the outcome."""

    def step(self, response: bytes | None) -> bytes | None:
        """The challenge that answers a response; None if the client has proven its user. Raises AmqpError if it has
        not."""


class AnonymousServer:
    def __init__(self) -> None:
        self.user = ""
        self.final: bytes | None = None

    def step(self, response: bytes | None) -> None:
        """Accept any response of ANONYMOUS: it is trace information, which proves nothing (RFC 4505)."""


class PlainServer:
    """PLAIN (RFC 4616): the client sends the password, so it is only for connections that cannot be listened to."""

    def __init__(self, find: Callable[[str], Verifier], may: Callable[[], bool] = lambda: True) -> None:
        """`may`: whether a password is checked."""
        self.user = ""
        self.final: bytes | None = None
        self._find = find
        self._may = may

    def step(self, response: bytes | None) -> bytes | None:
        if response is None:
            return b""
        try:
            authority, self.user, password = response.decode().split("\0")
        except ValueError:
            raise AmqpError(UNAUTHORIZED, "the client sent no valid PLAIN message") from None
        if not self._may():
            raise TurnError
        if not self._find(self.user).fits(password) or authority not in ("", self.user):
            raise AmqpError(UNAUTHORIZED, f"the user {self.user!r} is unknown, or the password is wrong")
        return None


class ExternalServer:
    """EXTERNAL (RFC 4422, appendix A): TLS knows the client by its certificate."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.final: bytes | None = None

    def step(self, response: bytes | None) -> None:
        if response and not hmac.compare_digest(response, self.user.encode()):
            raise AmqpError(UNAUTHORIZED, f"user {self.user!r} asks to act as another user")


Offer = Mapping[Symbol, Callable[[], Exchange]]
OPEN: Final[Offer] = {ANONYMOUS: AnonymousServer}


class SaslServer(SaslLayer):
    def __init__(self, offer: Offer = OPEN, denied: Callable[[], None] = lambda: None) -> None:
        """If ANONYMOUS is offered, a client may go without SASL. `denied` is called when a client fails to
        authenticate."""
        super().__init__()
        self._offer = offer
        self._denied = denied
        self._exchange: Exchange | None = None

    def _greet(self) -> None:
        if self._buffer[:8] == AMQP_HEADER:
            if ANONYMOUS not in self._offer:
                self.out += SASL_HEADER
                raise AmqpError(UNAUTHORIZED, "the client uses no SASL")
            self.done = self._greeted = True
            return
        super()._greet()
        self.out += SASL_HEADER
        self.write_frame(MECHANISMS, _array(list(self._offer)))

    def _handle(self, frame: Described) -> None:
        if frame.descriptor == INIT and frame.value and self._exchange is None:
            begin = self._offer.get(frame.value[0]) if isinstance(frame.value[0], Symbol) else None
            if begin is None:
                self.write_frame(OUTCOME, ubyte(DENIED))
                raise AmqpError(UNAUTHORIZED, "the client chose a SASL mechanism that was not offered")
            self._exchange = begin()
            self.mechanism = str(frame.value[0])
            self._step(self._exchange, binary(frame, 1))
        elif frame.descriptor == RESPONSE and self._exchange is not None:
            self._step(self._exchange, binary(frame, 0) or b"")
        else:
            raise AmqpError(FRAMING_ERROR, "the client sent an unexpected SASL frame")

    def _step(self, exchange: Exchange, response: bytes | None) -> None:
        try:
            challenge = exchange.step(response)
        # The client may try again, because the password was not checked.
        except TurnError:
            raise
        except AmqpError:
            self._denied()
            self.write_frame(OUTCOME, ubyte(DENIED))
            raise
        if challenge is not None:
            self.write_frame(CHALLENGE, challenge)
            return
        self.user = exchange.user
        self.write_frame(OUTCOME, ubyte(OK), *([] if exchange.final is None else [exchange.final]))
        self.done = True


def _array(symbols: list[Symbol]) -> Raw:
    """The encoded array of symbols. One symbol is encoded as an array, too, because some clients cannot read a lone
    symbol.
    """
    body = b"".join(bytes((len(symbol),)) + symbol.encode() for symbol in symbols)
    return Raw(bytes((0xE0, len(body) + 2, len(symbols), 0xA3)) + body)
