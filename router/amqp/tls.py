"""TLS over a socket: decrypts all input of one read at once, because batches are made of reads.

A trio TLS stream returns one record of 16 KiB for each read, and each read causes a whole step. The given contexts hold
the certificates and decide which peers are trusted (`router.amqp.sasl.credentials`, `router.security`).
"""

import contextlib
import ssl
from collections.abc import Mapping
from typing import Any, Final, Self

import trio

from router.amqp.pipe import PIECE, HandshakeError, LayeredStream, Pipe, pipe_of

RECORD: Final = 16 * 1024
UNKNOWN_CA: Final = range(18, 22)
"""OpenSSL's codes for certificates that are self-signed, or signed by an unknown authority."""


class TlsError(HandshakeError):
    """The handshake of TLS failed."""


class UnknownCaError(TlsError):
    """No trusted authority vouches for the peer's certificate."""


class LeftError(TlsError):
    """The peer disconnected during a handshake, for example because it has waited for too long."""


class TlsPipe(Pipe):
    """The pipe above TLS. Encrypted bytes count as written once all of them have gone."""

    def __init__(self, below: Pipe, context: ssl.SSLContext, host: str | None) -> None:
        self.taken = 0
        self._below = below
        self._come, self._go = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.protocol is ssl.PROTOCOL_TLS_CLIENT
        self.tls = context.wrap_bio(self._come, self._go, server_side=not client, server_hostname=host)
        self._encrypted: bytes | memoryview = b""  # encrypted bytes that are not written yet
        self._means = 0  # the number of plain bytes that `_encrypted` stands for
        self._over = False  # True once the peer has ended its direction

    async def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.write_pending()
                self._take(came := await self._below.read(RECORD))
                if not came:
                    raise LeftError("the peer closed the connection during the TLS handshake") from None
            except ssl.SSLError:
                with contextlib.suppress(trio.BrokenResourceError):
                    # The pending output is our TLS alert, which tells the peer the reason.
                    await self.write_pending()
                raise
            else:
                await self.write_pending()
                return

    def _take(self, came: bytes) -> None:
        """Take input from the socket; `data` is empty at its end."""
        self.taken = self._below.taken
        if came:
            self._come.write(came)
        else:
            self._come.write_eof()

    async def read(self, size: int) -> bytes:
        """The decrypted input of one read of `size` bytes from the socket. An end without TLS's goodbye counts as an
        end, because the connection above knows whether it expects one."""
        # Begin with input that came together with the end of the handshake.
        data = self._decrypt() if self._come.pending else b""
        while not (data or self._over):
            self._take(await self._below.read(size))
            data = self._decrypt()
        return data

    def _decrypt(self) -> bytes:
        """Decrypt all input that is here. A read beyond the last record raises an exception, which costs as much as a
        small record. So the loop stops at a read that got less than it asked for, if no encrypted byte is left."""
        come, read, parts = self._come, self.tls.read, []
        try:
            while True:
                most = min(come.pending, RECORD) or RECORD
                parts.append(part := read(most))
                if not part:
                    self._over = True
                if not part or (len(part) < most and not come.pending and not come.eof):
                    break
        except ssl.SSLWantReadError:
            # The rest of a TLS record is still to come.
            pass
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            self._over = True
        except ssl.SSLError as error:
            raise trio.BrokenResourceError(reason_of(error)) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, data: bytes | memoryview) -> int:
        written = 0
        try:
            while written < len(data):
                encrypted = self._encrypted or self._encrypt(data[written:])
                went = self._went(encrypted, self._below.write(encrypted))
                written += went
                if not went:
                    break
        except trio.BrokenResourceError:
            # The following `write_on` raises the same error.
            pass
        return written

    async def write_on(self, data: bytes | memoryview) -> int:
        written = 0
        while not written:
            # The data is encrypted before the wait, because the wait may be cancelled.
            self._encrypted = self._encrypted or self._encrypt(data)
            written = self._went(self._encrypted, await self._below.write_on(self._encrypted))
        return written

    def _encrypt(self, data: bytes | memoryview) -> bytes:
        """Encrypt the beginning of `data`. After a write that wrote nothing, the caller passes the same bytes again."""
        try:
            self._means = self.tls.write(data if len(data) <= PIECE else data[:PIECE])
        # A TLS record was damaged.
        except ssl.SSLError as error:
            raise trio.BrokenResourceError(reason_of(error)) from None
        return self._go.read()

    def _went(self, encrypted: bytes | memoryview, size: int) -> int:
        if size == len(encrypted):
            self._encrypted = b""
            return self._means
        self._encrypted = memoryview(encrypted)[size:]
        return 0

    async def write_pending(self) -> None:
        """Write TLS's own pending output."""
        data = bytes(self._encrypted) + self._go.read()
        self._encrypted = b""
        with memoryview(data) as view:
            at = 0
            while at < len(data):
                at += await self._below.write_on(view[at:])


class TlsStream(LayeredStream):
    """A stream above a TLS pipe."""

    pipe: TlsPipe

    def __init__(self, below: trio.SocketStream, pipe: TlsPipe) -> None:
        self.below = below
        self.pipe = pipe
        self.cipher = pipe.tls.cipher()

    @classmethod
    async def over(cls, below: trio.SocketStream, context: ssl.SSLContext, host: str | None = None) -> Self:
        """Shake hands, as the end that the context is for, and return the stream. A client may give the `host` that the
        certificate has to name. Raises TlsError."""
        pipe = TlsPipe(pipe_of(below), context, host)
        try:
            await pipe.shake_hands()
        except (ssl.SSLError, ssl.CertificateError, trio.BrokenResourceError) as error:
            code = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else 0
            raise (UnknownCaError if code in UNKNOWN_CA else TlsError)(reason_of(error)) from None
        return cls(below, pipe)

    @property
    def peer(self) -> str:
        """The name in the peer's certificate; empty if the peer has shown none."""
        return peer_of(self.pipe.tls)

    async def send_eof(self) -> None:
        # TLS complains only that the peer's goodbye is missing, for which we do not wait.
        with contextlib.suppress(ssl.SSLError):
            self.pipe.tls.unwrap()
        await self.pipe.write_pending()
        await self.below.send_eof()


def peer_of(tls: ssl.SSLObject) -> str:
    """The name in the peer's certificate: the common name of its subject. Empty if the peer has shown none."""
    certificate: Mapping[str, Any] = tls.getpeercert() or {}
    subject = dict(field for fields in certificate.get("subject", ()) for field in fields)
    return str(subject.get("commonName", ""))


def shake_hands_in_memory(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[str, str]:
    """Shake hands in memory between two ends of ours, as a test of the two contexts. Returns the server's name as the
    client sees it, and the client's name as the server sees it. Raises ssl.SSLError.
    """
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    waits = True
    while waits:
        waits = False
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                waits = True
    return peer_of(ends[0]), peer_of(ends[1])


def reason_of(error: Exception) -> str:
    """Why TLS failed, in words for the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate was not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"TLS: {error.reason.lower().replace('_', ' ')}"
    return f"TLS: {error}"
