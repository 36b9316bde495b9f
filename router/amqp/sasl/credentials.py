"""What a client shows to be let in, and whom it believes to be a router."""

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
    """Without any it is anonymous. A password is never said in the clear: without TLS only SCRAM-SHA-256 is shown."""

    user: str = ""
    password: str = attrs.field(default="", repr=False)
    ca: Path | None = None
    """Certificates that are believed to vouch for routers; None: those that the system believes."""
    certificate: Path | None = None
    key: Path | None = None
    names: frozenset[str] = frozenset()
    """Of the certificates of routers; none: a certificate has to be of the host."""

    @property
    def name(self) -> str:
        """Who routers will say we are. Raises OSError, or ValueError, if that is for a certificate to say, and it does
        not."""
        if self.user or self.certificate is None:
            return self.user
        from cryptography.x509 import load_pem_x509_certificate
        from cryptography.x509.oid import NameOID

        subject = load_pem_x509_certificate(self.certificate.read_bytes()).subject
        return "".join(str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)[:1])

    def proofs(self, *, tls: bool) -> Sequence[Proof]:
        """What is shown by SASL. To who runs the mesh all routers offer SCRAM: nobody is told the mesh's secret."""
        if self.user:
            scram = ScramClient(self.user, self.password)
            return [scram, plain(self.user, self.password)] if tls and not self.names else [scram]
        return [external()] if tls and self.certificate is not None else []

    def context(self) -> ssl.SSLContext:
        """Raises OSError, of which ssl.SSLError is one, or ValueError, if there are no such files, or they are no
        certificates."""
        context = ssl.create_default_context(cafile=self.ca)
        context.check_hostname = not self.names
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, password=no_password)
        return context

    async def secure(self, stream: trio.SocketStream, host: str) -> TlsStream:
        """Raises OSError, TlsError if the other end is no router of these; or ValueError, as `context` does."""
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
