"""Proton's functions under watch: none is given a link or a session that was freed.

To read what is free mostly does no harm that shows, and may end a router another day. Never here: what the compiled
loops do, which call proton by themselves.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from router.amqp.proton.library import lib

FREES = "pn_link_free", "pn_session_free"
MAKES = "pn_sender", "pn_receiver", "pn_session"
USES = "pn_link_", "pn_session_"
"""How the names begin of what is given one, as the first argument; so are `pn_delivery` and two of those that make."""


class WatchedLibrary:
    """In place of `lib`."""

    def __init__(self) -> None:
        self._freed: set[Any] = set()
        self._links: dict[Any, Any] = {}
        """And their sessions, with which they are freed."""
        for name in dir(lib):
            value = getattr(lib, name)
            is_watched = name.startswith(USES) or name in (*MAKES, "pn_delivery")
            setattr(self, name, self._watched(name, value) if is_watched else value)
        self.pn_collector_peek = self._peek

    def _watched(self, name: str, function: Any) -> Any:
        def call(pointer: Any, *others: Any) -> Any:
            # A session is made of a connection, which may be where a link was.
            assert name == "pn_session" or pointer not in self._freed, f"{name} of what was freed"
            if name in FREES:
                self._freed |= {pointer, *self._links_of(pointer)}
            made = function(pointer, *others)
            if name in MAKES:
                self._is_new(made)
            elif name == "pn_link_session":
                self._links[pointer] = made
            return made

        return call

    def _links_of(self, session: Any) -> list[Any]:
        return [link for link, its in self._links.items() if its == session]

    def _peek(self, collector: Any) -> Any:
        """The next event: it may tell of what the peer has made."""
        event = lib.pn_collector_peek(collector)
        if event and lib.pn_event_type(event) == lib.PN_LINK_INIT:
            self._is_new(lib.pn_event_link(event))
        elif event and lib.pn_event_type(event) == lib.PN_SESSION_INIT:
            self._is_new(lib.pn_event_session(event))
        return event

    def _is_new(self, pointer: Any) -> None:
        """Where another one may have been, which was freed, or has gone with its connection."""
        self._freed.discard(pointer)
        for link in (pointer, *self._links_of(pointer)):
            self._links.pop(link, None)


@contextmanager
def watched() -> Iterator[None]:
    """All that our modules ask of proton."""
    library = WatchedLibrary()
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("router.amqp.") and getattr(module, "lib", None) is lib:
                patch.setattr(module, "lib", library)
        yield
