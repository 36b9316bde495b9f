"""Lets tests query a router over HTTP, with the client of the standard library in a thread."""

import http.client
import ssl
from collections.abc import Mapping

import attrs
import trio

from router.mesh.quantities import Address
from tests.hangs import HANGS_S

PATIENCE_S = HANGS_S


@attrs.frozen
class Reply:
    status: int
    headers: Mapping[str, str]
    """Keyed by names in lower case."""
    text: str


async def ask(
    address: Address,
    path: str,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    context: ssl.SSLContext | None = None,
) -> Reply:
    return await trio.to_thread.run_sync(_ask, address, path, dict(headers or {}), method, context)


def _ask(address: Address, path: str, headers: dict[str, str], method: str, context: ssl.SSLContext | None) -> Reply:
    connection = (
        http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_S)
        if context is None
        else http.client.HTTPSConnection(address.host, address.port, timeout=PATIENCE_S, context=context)
    )
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        named = {name.lower(): value for name, value in reply.getheaders()}
        return Reply(reply.status, named, reply.read().decode())
    finally:
        connection.close()
