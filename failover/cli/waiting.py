"""Tells the user of `publish`, while no outcome comes, for which subscribers the messages wait.

The command reads the `waits` in the statuses of the routers (docs/status.md). The publisher's home names the routers
that it waits for, and each of these routers names its subscribers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import trio

from router.mesh.shown.waits import shown_name
from router.mesh.status import FetchStatus, status_at
from router.text.printable import printable

SILENCE_S: Final = 3.0
"""The seconds without an outcome after which the command asks the routers. A shorter wait needs no explanation."""


async def tell_who_is_awaited(
    publisher: str,
    routers: Sequence[str],
    fetch: FetchStatus,
    progress: Callable[[], int | None],
    tell: Callable[[str], None],
) -> None:
    """Watch the outcomes. If no outcome comes for `SILENCE_S`, call `tell` with the names of the subscribers that the
    messages wait for. Runs until cancelled.

    `routers` has host:port of each router, for `fetch`. `progress` returns the number of outcomes, or None while no
    outcome is awaited.
    """
    told: list[str] = []
    while True:
        before = progress()
        await trio.sleep(SILENCE_S)
        if before is None or progress() != before:
            told = []
            continue
        statuses: list[Mapping[str, Any]] = []
        async with trio.open_nursery() as nursery:
            for router in routers:
                nursery.start_soon(_ask, router, fetch, statuses)
        if (names := awaited(publisher, statuses)) and names != told:
            told = names
            tell(f"waiting for {printable(', '.join(names))}")


async def _ask(router: str, fetch: FetchStatus, statuses: list[Mapping[str, Any]]) -> None:
    if (status := await status_at(router, fetch)) is not None:
        statuses.append(status)


def awaited(publisher: str, statuses: Iterable[Mapping[str, Any]]) -> list[str]:
    """The links and routers that the messages of a publisher wait for, with the reason if it is known. A router is
    named only if its own status names no subscriber for which messages of this publisher wait."""
    names: dict[str, None] = {}
    silent: dict[str, None] = {}
    resolved = set()
    for status in statuses:
        for wait in status["waits"]:
            role, _, name = wait["for"].partition(" ")
            # a wait for the publisher itself says that the home waits until the publisher resumes
            if publisher not in wait["publishers"] or wait["for"] == f"publisher {publisher}":
                continue
            if role == "router":
                silent[name] = None
                continue
            resolved.add(status["router"])
            names[shown_name(wait["for"], status)] = None
    return [*names, *(f"router {name}" for name in silent if name not in resolved)]
