"""Two ends of TLS in one process, with certificates made for a run of the tests."""

import functools
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from router.amqp.tls import TlsStream
from router.security.certs import Authority


@functools.cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a client and of a server. The server is named b and known as localhost."""
    with TemporaryDirectory() as folder:
        authority = Authority(Path(folder), "a CA of the tests")
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(*authority.issue("b", ["localhost"]))
        client = ssl.create_default_context(cafile=authority.paths("ca")[0])
        client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    return client, server


async def shaken(below: trio.SocketStream, other: trio.SocketStream) -> tuple[TlsStream, TlsStream]:
    """The TLS streams of the client and of the server."""
    client, server = contexts()
    found: dict[str, TlsStream] = {}

    async def meet(name: str, stream: trio.SocketStream, context: ssl.SSLContext) -> None:
        found[name] = await TlsStream.over(stream, context, "localhost" if name == "client" else None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(meet, "client", below, client)
        nursery.start_soon(meet, "server", other, server)
    return found["client"], found["server"]
