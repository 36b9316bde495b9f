"""Fetches the status of a run directory's routers, with the credentials of the mesh's operator."""

import functools
from typing import Any

from failover.client.status import fetch_status
from router.amqp.sasl.credentials import Credentials
from router.mesh.errors import FileError
from router.mesh.rundir import RunDirectory
from router.mesh.status import FetchStatus
from router.security.operator import operator_of


def fetcher(directory: RunDirectory) -> FetchStatus:
    """Return a function that fetches the status of a router. The function reads the files with the operator's
    credentials at its first call. If a file is missing, it raises FileError at this and each later call.
    """

    # `up` makes the fetcher before the run directory has a topology, so the files are read at the first call.
    @functools.cache
    def who() -> tuple[str, Credentials] | FileError:
        try:
            return operator_of(directory)
        except FileError as error:
            return error

    async def fetch(host: str, port: int, timeout: float) -> dict[str, Any]:
        found = who()
        if isinstance(found, FileError):
            raise found
        scheme, credentials = found
        return await fetch_status(host, port, timeout, credentials, scheme)

    return fetch
