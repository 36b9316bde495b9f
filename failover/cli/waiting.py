"""What `publish` says while no outcome comes: for whom its messages wait.

Routers know it (docs/status.md, `waits`): a publisher's own one names the others, and these their subscribers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import trio

from router.mesh.shown.waits import whom
from router.mesh.status import FetchStatus, status_at
from router.text.printable import printable

SILENCE_S: Final = 3.0
"""Without an outcome, before anybody is asked: who waits less does not ask for whom."""


async def tell_who_is_awaited(
    publisher: str,
    routers: Sequence[str],
    fetch: FetchStatus,
    progress: Callable[[], int | None],
    tell: Callable[[str], None],
) -> None:
    """Goes on until it is cancelled. `routers` are host:port, asked by `fetch`; `progress` counts outcomes, None if
    none is awaited."""
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
    """Who keeps a publisher's messages from being accepted, each with why if that is known."""
    names: dict[str, None] = {}
    silent: dict[str, None] = {}
    resolved = set()
    for status in statuses:
        for wait in status["waits"]:
            role, _, name = wait["for"].partition(" ")
            if publisher not in wait["publishers"] or wait["for"] == f"publisher {publisher}":  # it is just coming back
                continue
            if role == "router":
                silent[name] = None
                continue
            resolved.add(status["router"])
            names[whom(wait["for"], status)] = None
    return [*names, *(f"router {name}" for name in silent if name not in resolved)]
