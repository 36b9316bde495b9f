"""The files that `security` names in a topology, read for one router: certificates and the mesh's secret.

Errors name the path of a file, and never its contents.
"""

import ssl
import sys
from pathlib import Path
from typing import Final, Self

import attrs

from router.amqp.sasl.credentials import Credentials, no_password
from router.amqp.sasl.scram import LONGEST
from router.amqp.tls import reason_of, shake_hands_in_memory
from router.mesh.config import Topology
from router.mesh.errors import FileError

LEAST_SECRET: Final = 16
"""The fewest characters of the mesh's secret. A peer to which a neighbour proves the secret can afterwards test guesses
offline, without a limit, so the secret must be too long to guess."""


class SecurityError(FileError):
    """A file of certificates, or of the secret, has a fault; the text says which."""


@attrs.frozen
class Contexts:
    """The TLS contexts of one router."""

    for_clients: ssl.SSLContext
    for_neighbours: ssl.SSLContext
    as_neighbour: ssl.SSLContext


class Files:
    def __init__(self, topology: Topology, name: str) -> None:
        security = topology.security
        self._name = name
        self._certificate, self._key, self._ca, self._secret = (
            None if file is None else topology.file(file, name)
            for file in (security.certificate, security.key, security.ca, security.secret)
        )

    def contexts(self) -> Contexts:
        """The TLS contexts of the router. The router first shakes hands with itself, as with a neighbour. Raises
        SecurityError if this fails."""
        made = Contexts(self._server(ssl.CERT_OPTIONAL), self._server(ssl.CERT_REQUIRED), self._client())
        try:
            names = shake_hands_in_memory(made.as_neighbour, made.for_neighbours)
            why = f"names {names[0]!r}"
        except ssl.SSLError as error:
            names, why = ("", ""), reason_of(error)
        if names != (self._name, self._name):
            assert self._certificate is not None
            what = f"expected a certificate of {self._name!r} that {self._ca} has signed"
            raise SecurityError(self._certificate, [f"{self._certificate}: {why}, {what}"])
        return made

    def check_neighbour(self, other: Self) -> None:
        """Check that the other router and this one accept each other. The files of each were checked before. Raises
        SecurityError."""
        if self.secret() != other.secret():
            assert self._secret is not None
            raise SecurityError(
                self._secret,
                [f"{self._secret}, {other._secret}: the secrets of one mesh differ, expected the same secret"],
            )
        if self._certificate is None:
            return
        for one, neighbour in ((self, other), (other, self)):
            try:
                shake_hands_in_memory(one._client(), neighbour._server(ssl.CERT_REQUIRED))
            except ssl.SSLError as error:
                what = f"router {one._name}: {reason_of(error)}, expected a certificate that {one._ca} has signed"
                raise SecurityError(self._certificate, [f"{neighbour._certificate}: {what}"]) from None

    def _server(self, demand: ssl.VerifyMode) -> ssl.SSLContext:
        """The context for incoming connections. `demand` says whether a peer has to show a certificate. Raises
        SecurityError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = demand
        # Without session tickets, a peer that connects again has to show its certificate again.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        return self._filled(context)

    def _client(self) -> ssl.SSLContext:
        """The context for connections to neighbours. Their certificates name routers, not hosts. Raises
        SecurityError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        # Python's own clients check certificates strictly since 3.13, so this context does the same.
        if sys.version_info >= (3, 13):
            context.verify_flags |= ssl.VERIFY_X509_STRICT
        return self._filled(context)

    def _filled(self, context: ssl.SSLContext) -> ssl.SSLContext:
        assert self._certificate is not None and self._key is not None and self._ca is not None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for path in (self._certificate, self._key, self._ca):
            _readable(path, "a file in PEM")
        try:
            context.load_verify_locations(self._ca)
        # TLS errors are OSErrors, too. Perhaps the file has also gone since it was read.
        except OSError:
            raise SecurityError(self._ca, [f"{self._ca}: expected certificates of a CA, in PEM"]) from None
        try:
            context.load_cert_chain(self._certificate, self._key, password=no_password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            what = f"{self._certificate}, {self._key}: {reason.lower().replace('_', ' ')}"
            raise SecurityError(self._certificate, [f"{what}, expected a certificate and its key, in PEM"]) from None
        return context

    def secret(self) -> str | None:
        """The mesh's secret; None if none is configured. Raises SecurityError."""
        if self._secret is None:
            return None
        try:
            text = _readable(self._secret, "the mesh's secret").decode().strip()
        except UnicodeDecodeError:
            text = ""
        if not LEAST_SECRET <= len(text) <= LONGEST or not text.isprintable():
            what = f"expected a secret of {LEAST_SECRET} to {LONGEST} characters, in one line"
            raise SecurityError(self._secret, [f"{self._secret}: {what}"])
        return text

    def credentials(self, user: str, names: frozenset[str]) -> Credentials:
        """The operator's credentials for routers of these names. Raises SecurityError."""
        secret = self.secret()
        return Credentials(
            user if secret is not None else "", secret or "", self._ca, self._certificate, self._key, names
        )


def _readable(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SecurityError(path, [f"{path}: {error.strerror}, expected {what}"]) from None
