"""How commands ask the routers of a run directory for their status: as who runs them."""

import functools
from typing import Any

from failover.client.status import fetch_status
from router.amqp.sasl.credentials import Credentials
from router.mesh.errors import FileError
from router.mesh.rundir import RunDirectory
from router.mesh.status import FetchStatus
from router.security.operator import operator_of


def fetcher(directory: RunDirectory) -> FetchStatus:
    """Files that are missing are one error, however many ask."""

    @functools.cache  # as late as it is asked for: before `up` there is no topology
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
