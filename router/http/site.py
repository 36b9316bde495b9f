"""The answers of the listener `http`: a table of paths, and the permissions for them (docs/security.md).

Every peer that can connect may ask whether the router is healthy. All other pages name links, and are for users that
may see all links. The methods are GET and HEAD only: the listener shows, and does not command.

A listener on loopback accepts only host names of loopback. Otherwise an attacker could point the name of a web page of
his own to 127.0.0.1, and the page could then read the answers of the listener (DNS rebinding).
"""

import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from attrs import evolve, frozen

from router.amqp.format.errors import TOO_MANY
from router.http.exchange import WebAnswer, WebCaller, WebRefusal, WebRequest, text_answer
from router.mesh.config import is_loopback

log = logging.getLogger("oncemesh.security")

PRUDENCE: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
"""The headers of every answer. They let a page run only code from this listener."""

AT_AN_END: Final = ("Connection", "close")
"""The header that ends the connection after a wrong password. The peer then has to connect again for its next attempt,
and the router makes a new connection wait for its turn (`router.security.attempts`)."""

LONGEST_SHOWN: Final = 64
"""The highest number of characters of a user's name that the log shows."""

Handler = Callable[[WebRequest, WebCaller], Awaitable[WebAnswer]]


@frozen
class Page:
    handler: Handler
    for_all: bool = False
    """True if every peer that can connect gets the page. Otherwise only users that may see all links get it."""


class Keys(Protocol):
    """The object that checks passwords and permissions: `router.security.doors`."""

    def proves(self, user: str, password: str) -> bool:
        """Whether this is the password of the user."""

    def sees_all(self, user: str) -> bool:
        """Whether the user may see all links; "" is the anonymous user."""


class Site:
    def __init__(
        self,
        host: str,
        keys: Keys,
        pages: Mapping[str, Page],
        is_operator: Callable[[str], bool],
        *,
        anybody: bool,
        passwords: bool,
    ) -> None:
        """`host`: the host at which the listener listens. `anybody`: anonymous callers may look. `passwords`: the
        listener accepts passwords."""
        self._is_operator = is_operator
        self._is_loopback = is_loopback(host)
        self._keys = keys
        self._pages = pages
        self._anybody = anybody
        self._passwords = passwords

    async def answer(self, request: WebRequest, caller: WebCaller) -> WebAnswer:
        """Answer a request. A fault here is logged and answered with 500: it does not end the router."""
        try:
            answer = await self._page(request, caller).handler(request, caller)
        except WebRefusal as refusal:
            answer = refusal.answer
        except Exception:
            log.exception("%s: the page %s could not be served", caller.origin, request.path)
            answer = text_answer(500, "this page cannot be served; the router's log has the reason")
        return evolve(answer, headers=(*PRUDENCE, *answer.headers))

    def _page(self, request: WebRequest, caller: WebCaller) -> Page:
        """The page of the request. Raises WebRefusal."""
        if request.method not in ("GET", "HEAD"):
            raise WebRefusal(405, f"{request.method}, expected GET or HEAD", ("Allow", "GET, HEAD"))
        # Browsers always send the header `Host`. Health checks in HTTP/1.0 may leave it out.
        named = request.headers.get("host")
        if self._is_loopback and named is not None and not is_loopback(_host(named)):
            raise WebRefusal(421, "the host name is not allowed on loopback, expected localhost or 127.0.0.1")
        page = self._pages.get(request.path)
        if page is None:
            raise WebRefusal(404, f"there is no such page, expected one of {', '.join(self._pages)}")
        if not page.for_all:
            user = self._user(request, caller)
            caller.reads_events = self._is_operator(user)
            if not self._keys.sees_all(user):
                log.warning("%s: user %r may not see the links of others", caller.origin, user)
                raise WebRefusal(403, "this user may not see the links of others")
        return page

    def _user(self, request: WebRequest, caller: WebCaller) -> str:
        """The user, by password or certificate; "" if anonymous. Raises WebRefusal."""
        said = request.headers.get("authorization")
        if said is not None and self._passwords:
            if caller.proven is None or caller.proven[0] != said:
                caller.proven = said, self._proven(said, caller)
            return caller.proven[1]
        if caller.certified or self._anybody:
            return caller.certified
        raise self._stranger("expected a user's name and password" if self._passwords else "expected a certificate")

    def _proven(self, said: str, caller: WebCaller) -> str:
        if not caller.may_try():
            log.warning("%s: %s", caller.origin, TOO_MANY)
            raise WebRefusal(429, TOO_MANY, AT_AN_END)
        scheme, _, words = said.partition(" ")
        try:
            user, _, password = b64decode(words.strip(), validate=True).decode().partition(":")
        except ValueError:
            user = password = ""
        if scheme.lower() != "basic" or not user or not self._keys.proves(user, password):
            log.warning("%s: the user %r is unknown, or the password is wrong", caller.origin, user[:LONGEST_SHOWN])
            caller.denied()
            raise self._stranger("the user is unknown, or the password is wrong", AT_AN_END)
        return user

    def _stranger(self, why: str, *headers: tuple[str, str]) -> WebRefusal:
        """The refusal of an unknown caller. It asks for a password if the listener takes passwords."""
        ways = [("WWW-Authenticate", 'Basic realm="oncemesh", charset="UTF-8"')] if self._passwords else []
        return WebRefusal(401 if self._passwords else 403, why, *ways, *headers)


def _host(header: str) -> str:
    """The host of the header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if ":" in header else header
