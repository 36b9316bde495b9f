"""SCRAM-SHA-256 (RFC 5802, RFC 7677): both ends prove that they know a password, and neither sends it.

The server keeps a `Verifier`, from which the password can be found only by guessing. For an unknown user it uses a
decoy, so that a client cannot learn which users exist. There is no channel binding: without TLS, an attacker between
the two ends can read, and change what follows the exchange.
"""

import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, Self

import attrs

from router.amqp.format.codec import Symbol
from router.amqp.format.errors import UNAUTHORIZED, AmqpError, TurnError

SCRAM: Final = Symbol("SCRAM-SHA-256")
ITERATIONS: Final = 16_384
"""The PBKDF2 iterations that each guess of a password costs. They take milliseconds, and a router's loop waits for them
at each PLAIN."""
# RFC 7677, section 4, names this number as the least.
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 1_000_000
"""The highest number of iterations that the client computes, because the server is not authenticated yet. The client
also refuses fewer than `LEAST_ITERATIONS`, because a false server could test guesses of the password against the
client's answer."""


LONGEST: Final = 256
"""The highest number of characters of a name or password. They are limited because NFKC takes time that is quadratic in
the number of marks on one letter."""


def prepared(text: str) -> bytes:
    """The form in which a name or password is compared (SASLprep, RFC 4013). Raises AmqpError if the text cannot be
    one."""
    if len(text) > LONGEST:
        raise AmqpError(UNAUTHORIZED, f"the name or password has more than {LONGEST} characters")
    mapped = (" " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char))
    normal = unicodedata.normalize("NFKC", "".join(mapped))
    if any(stringprep.in_table_c21_c22(char) or stringprep.in_table_c3(char) for char in normal):
        raise AmqpError(UNAUTHORIZED, "the name or password has control characters")
    return normal.encode()


@attrs.frozen
class Verifier:
    """Proves a password without containing it."""

    salt: bytes
    iterations: int
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> Self:
        salt = salt or secrets.token_bytes(16)
        salted = hashlib.pbkdf2_hmac("sha256", prepared(password), salt, iterations)
        return cls(salt, iterations, _hash(_sign(salted, b"Client Key")), _sign(salted, b"Server Key"))

    @classmethod
    def decoy(cls, user: str, key: bytes) -> Self:
        """The verifier of a user that does not exist: no password fits it. Its salt depends only on `user` and
        `key`."""
        salt = _sign(key, user.encode())[:16]
        return cls(salt, ITERATIONS, secrets.token_bytes(32), secrets.token_bytes(32))

    def fits(self, password: str) -> bool:
        """Whether the password fits. Takes the time of all iterations, unless the text cannot be a password."""
        try:
            other = Verifier.of(password, self.salt, self.iterations)
        except AmqpError:
            return False
        return hmac.compare_digest(other.stored_key, self.stored_key)


class ScramServer:
    """The server's end of one exchange. `find` returns the verifier of a user, or a decoy; `may` decides whether a
    proof is checked."""

    def __init__(
        self, find: Callable[[str], Verifier], nonce: str | None = None, may: Callable[[], bool] = lambda: True
    ) -> None:
        self.user = ""
        self.final: bytes | None = None
        self._find = find
        self._may = may
        self._nonce = nonce or _new_nonce()
        # The client's first message without its header, and the challenge. The proof covers both.
        self._first = ""
        self._header = b""
        self._verifier: Verifier | None = None

    def step(self, response: bytes | None) -> bytes | None:
        """The challenge that answers a response. None if the client has proven that it knows the password; then `final`
        has the server's proof."""
        if response is None:
            return b""
        if self._verifier is None:
            return self._begin(_text(response))
        self._prove(_text(response), self._verifier)
        return None

    def _begin(self, text: str) -> bytes:
        binding, _, rest = text.partition(",")
        authority, _, bare = rest.partition(",")
        if binding not in ("n", "y"):
            raise AmqpError(UNAUTHORIZED, "the client asks for SCRAM with channel binding, which is not offered")
        user, nonce = _values(bare, "nr")
        self.user = _unescaped(user)
        if authority not in ("", f"a={user}"):
            raise AmqpError(UNAUTHORIZED, f"user {self.user!r} asks to act as another user")
        self._header = f"{binding},{authority},".encode()
        self._verifier = self._find(self.user)
        self._nonce = nonce + self._nonce
        salt, iterations = b64encode(self._verifier.salt).decode(), self._verifier.iterations
        challenge = f"r={self._nonce},s={salt},i={iterations}"
        self._first = f"{bare},{challenge}"
        return challenge.encode()

    def _prove(self, text: str, verifier: Verifier) -> None:
        if not self._may():
            raise TurnError
        without_proof, _, proof = text.rpartition(",p=")
        header, nonce = _values(without_proof, "cr")
        said = f"{self._first},{without_proof}".encode()
        key = _xor(_decoded(proof), _sign(verifier.stored_key, said))
        fits = hmac.compare_digest(_hash(key), verifier.stored_key)
        if not fits or nonce != self._nonce or _decoded(header) != self._header:
            raise AmqpError(UNAUTHORIZED, f"the user {self.user!r} is unknown, or the password is wrong")
        self.final = b"v=" + b64encode(_sign(verifier.server_key, said))


class ScramClient:
    """The client's end of one exchange. Raises AmqpError if the server does not prove that it knows the password."""

    name = SCRAM

    def __init__(self, user: str, password: str, nonce: str | None = None) -> None:
        self._password = password
        self._nonce = nonce or _new_nonce()
        self._bare = f"n={_escaped(prepared(user).decode())},r={self._nonce}"
        self._server: bytes | None = None

    def initial(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes:
        text = _text(challenge)
        nonce, salt, count = _values(text, "rsi")
        if self._server is not None or not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AmqpError(UNAUTHORIZED, "the server did not answer the SCRAM exchange of this client")
        iterations = int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            asked = f"the server asks for {count} rounds of password hashing (SCRAM iterations)"
            raise AmqpError(UNAUTHORIZED, f"{asked}, expected {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
        salted = hashlib.pbkdf2_hmac("sha256", prepared(self._password), _decoded(salt), iterations)
        without_proof = f"c=biws,r={nonce}"
        said = f"{self._bare},{text},{without_proof}".encode()
        key = _sign(salted, b"Client Key")
        self._server = _sign(_sign(salted, b"Server Key"), said)
        return f"{without_proof},p={b64encode(_xor(key, _sign(_hash(key), said))).decode()}".encode()

    def finish(self, final: bytes | None) -> None:
        proof = _decoded(_text(final or b"").removeprefix("v="))
        if self._server is None or not hmac.compare_digest(proof, self._server):
            raise AmqpError(UNAUTHORIZED, "the server did not prove that it knows the password")


def _sign(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    if len(one) != len(other):
        raise _malformed()
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _new_nonce() -> str:
    return secrets.token_urlsafe(18)


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise _malformed() from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise _malformed() from None


def _values(text: str, names: str) -> list[str]:
    """The values of the named attributes, with which a message begins. Later attributes are extensions, and are
    ignored.
    """
    parts = text.split(",")[: len(names)]
    if [part[:2] for part in parts] != [f"{name}=" for name in names] or "" in (part[2:] for part in parts):
        raise _malformed()
    return [part[2:] for part in parts]


def _malformed() -> AmqpError:
    return AmqpError(UNAUTHORIZED, "the peer sent no valid SCRAM message")
