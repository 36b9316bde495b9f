"""Watches proton's functions: none may get a link or a session that was freed.

Reading freed memory mostly does no visible harm, and may end a router another day. The compiled loops, which call
proton directly, are not watched.
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
"""Prefixes of functions that take a link or session as the first argument. So do `pn_delivery` and two of `MAKES`."""


class WatchedLibrary:
    """Replaces `lib`."""

    def __init__(self) -> None:
        self._freed: set[Any] = set()
        self._links: dict[Any, Any] = {}
        """Link -> its session, with which it is freed."""
        for name in dir(lib):
            value = getattr(lib, name)
            is_watched = name.startswith(USES) or name in (*MAKES, "pn_delivery")
            setattr(self, name, self._watched(name, value) if is_watched else value)
        self.pn_collector_peek = self._peek

    def _watched(self, name: str, function: Any) -> Any:
        def call(pointer: Any, *others: Any) -> Any:
            # a session is made from a connection, which may stand where a link was
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
        """The next event. It may report a link or session that the peer has made."""
        event = lib.pn_collector_peek(collector)
        if event and lib.pn_event_type(event) == lib.PN_LINK_INIT:
            self._is_new(lib.pn_event_link(event))
        elif event and lib.pn_event_type(event) == lib.PN_SESSION_INIT:
            self._is_new(lib.pn_event_session(event))
        return event

    def _is_new(self, pointer: Any) -> None:
        """The pointer is new, even if a freed object, or one of an ended connection, was there before."""
        self._freed.discard(pointer)
        for link in (pointer, *self._links_of(pointer)):
            self._links.pop(link, None)


@contextmanager
def watched() -> Iterator[None]:
    """Watch all calls of our modules to proton."""
    library = WatchedLibrary()
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("router.amqp.") and getattr(module, "lib", None) is lib:
                patch.setattr(module, "lib", library)
        yield
