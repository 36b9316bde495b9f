"""The client's end of SASL: chooses one of the mechanisms that the server offers, and makes the exchange (AMQP 1.0
5.3)."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from router.amqp.format.codec import Described, Symbol
from router.amqp.format.errors import FRAMING_ERROR, UNAUTHORIZED, AmqpError
from router.amqp.sasl.layer import (
    CHALLENGE,
    INIT,
    MECHANISMS,
    OK,
    OUTCOME,
    RESPONSE,
    SASL_HEADER,
    SaslLayer,
    binary,
)
from router.amqp.sasl.scram import SCRAM
from router.amqp.sasl.server import ANONYMOUS, EXTERNAL, PLAIN

WANTED: Final = {SCRAM: "a user and a password", PLAIN: "a user and a password", EXTERNAL: "a certificate"}
"""Maps each mechanism that the server may offer to the credential that a client needs for it. An error text names these
credentials to a client that has none."""


class Proof(Protocol):
    """Proves the client's identity by one mechanism."""

    @property
    def name(self) -> Symbol: ...
    def initial(self) -> bytes: ...
    def respond(self, challenge: bytes) -> bytes: ...
    def finish(self, final: bytes | None) -> None:
        """Check the server's last data, after the server has accepted. Raises AmqpError if the mechanism requires a
        proof of the server, and the proof is missing or wrong."""


class _Simple:
    """A mechanism with one message: the initial response."""

    def __init__(self, name: Symbol, initial: bytes) -> None:
        self.name = name
        self._initial = initial

    def initial(self) -> bytes:
        return self._initial

    def respond(self, challenge: bytes) -> bytes:
        raise AmqpError(UNAUTHORIZED, f"the server sent a challenge, but {self.name} has none")

    def finish(self, final: bytes | None) -> None:
        pass


def anonymous() -> Proof:
    return _Simple(ANONYMOUS, b"anonymous")


def external() -> Proof:
    return _Simple(EXTERNAL, b"")


def plain(user: str, password: str) -> Proof:
    return _Simple(PLAIN, f"\0{user}\0{password}".encode())


class SaslClient(SaslLayer):
    def __init__(self, proofs: Sequence[Proof] = (), server: str = "") -> None:
        """`proofs`: the proofs that the client can give, in order of preference; none: anonymous. `server`: the
        identity of the other end, as the proofs expect it or as TLS has proved it."""
        super().__init__()
        self.out = SASL_HEADER
        self._proofs = proofs or (anonymous(),)
        self._chosen: Proof | None = None
        self._server = server

    def _handle(self, frame: Described) -> None:
        if frame.descriptor == MECHANISMS and frame.value and self._chosen is None:
            self._chosen = self._choose(frame.value[0])
            self.write_frame(INIT, self._chosen.name, self._chosen.initial())
        elif frame.descriptor == CHALLENGE and self._chosen is not None:
            self.write_frame(RESPONSE, self._chosen.respond(binary(frame, 0) or b""))
        elif frame.descriptor == OUTCOME and frame.value and self._chosen is not None:
            if frame.value[0] != OK:
                wrong = ": wrong user or password" if self._chosen.name in (SCRAM, PLAIN) else ""
                raise AmqpError(UNAUTHORIZED, f"the server refused {self._chosen.name}{wrong}")
            self._chosen.finish(binary(frame, 1))
            self.user = self._server
            self.done = True
        else:
            expected = "its list of mechanisms" if self._chosen is None else "a challenge or an outcome"
            raise AmqpError(FRAMING_ERROR, f"the server sent the wrong SASL frame, expected {expected}")

    def _choose(self, offered: Any) -> Proof:
        offer = offered if isinstance(offered, list) else [offered]
        for proof in self._proofs:
            if proof.name in offer:
                return proof
        ours = " or ".join(proof.name for proof in self._proofs)
        known = [WANTED[proof.name] for proof in self._proofs if proof.name in WANTED]
        wanted = dict.fromkeys(words for name, words in WANTED.items() if name in offer and words not in known)
        hint = f"; it wants {', or '.join(wanted)}" if wanted else ""
        raise AmqpError(UNAUTHORIZED, f"the server does not offer {ours}, it offers {offered!r}{hint}")
