"""The credentials that a client shows, and the certificates by which it recognizes a router."""

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from router.amqp.sasl.client import Proof, external, plain
from router.amqp.sasl.scram import ScramClient
from router.amqp.tls import TlsError, TlsStream, UnknownCaError


@attrs.frozen
class Credentials:
    """The credentials of a client. Without any, the client is anonymous. The client never sends a password in the
    clear: without TLS it uses only SCRAM-SHA-256."""

    user: str = ""
    password: str = attrs.field(default="", repr=False)
    ca: Path | None = None
    """The certificate authorities that vouch for routers; None: the authorities that the system trusts."""
    certificate: Path | None = None
    key: Path | None = None
    names: frozenset[str] = frozenset()
    """The names in routers' certificates; none: a certificate has to name the host."""

    @property
    def name(self) -> str:
        """The user name that routers will see. Raises OSError or ValueError if only the certificate can give the name,
        and it has none or cannot be read."""
        if self.user or self.certificate is None:
            return self.user
        from cryptography.x509 import load_pem_x509_certificate
        from cryptography.x509.oid import NameOID

        subject = load_pem_x509_certificate(self.certificate.read_bytes()).subject
        return "".join(str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)[:1])

    def proofs(self, *, tls: bool) -> Sequence[Proof]:
        """The SASL proofs to try. For the mesh's own user this is only SCRAM, which every router offers, so that the
        secret of the mesh is never sent."""
        if self.user:
            scram = ScramClient(self.user, self.password)
            return [scram, plain(self.user, self.password)] if tls and not self.names else [scram]
        return [external()] if tls and self.certificate is not None else []

    def context(self) -> ssl.SSLContext:
        """The TLS context. Raises OSError (of which ssl.SSLError is a kind) or ValueError if a file is missing or is no
        certificate."""
        context = ssl.create_default_context(cafile=self.ca)
        context.check_hostname = not self.names
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, password=no_password)
        return context

    async def secure(self, stream: trio.SocketStream, host: str) -> TlsStream:
        """Shake hands over TLS. Raises OSError, TlsError if the other end is no trusted router, or ValueError as
        `context` does."""
        try:
            secured = await TlsStream.over(stream, self.context(), host)
        except UnknownCaError as error:
            hint = (
                f"no CA in {self.ca} has signed it"
                if self.ca
                else ("name the CA that signed it by --ca (Credentials.ca)")
            )
            raise UnknownCaError(f"{error}; {hint}") from None
        if self.names and secured.peer not in self.names:
            raise TlsError(f"the certificate names {secured.peer!r}, expected {', '.join(sorted(self.names))}")
        return secured


NOBODY: Final = Credentials()


def no_password() -> str:
    raise ValueError("the private key is encrypted, expected a key without a passphrase")
