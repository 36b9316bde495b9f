"""Who may see which page of a router."""

from base64 import b64encode

import pytest

from router.http.exchange import WebAnswer, WebCaller, WebRequest, text_answer
from router.http.site import PRUDENCE, Page, Site


class Keys:
    """alice sees all, bob does not, nor do those without a name."""

    def __init__(self) -> None:
        self.asked = 0

    def proves(self, user: str, password: str) -> bool:
        self.asked += 1
        return user in ("alice", "bob") and password == f"{user}'s: word"

    def sees_all(self, user: str) -> bool:
        return user in ("alice", "router")


class AllSee(Keys):
    def sees_all(self, user: str) -> bool:
        return True


async def page(request: WebRequest, caller: WebCaller) -> WebAnswer:
    return text_answer(200, "the page")


async def broken(request: WebRequest, caller: WebCaller) -> WebAnswer:
    raise ValueError("a bug")


PAGES = {"/": Page(page), "/healthz": Page(page, for_all=True), "/broken": Page(broken)}


def site(host: str = "127.0.0.1", keys: Keys | None = None, *, anybody: bool = True, passwords: bool = False) -> Site:
    return Site(host, keys or AllSee(), PAGES, lambda user: True, anybody=anybody, passwords=passwords)


async def ask(
    site: Site, path: str = "/", method: str = "GET", caller: WebCaller | None = None, **headers: str
) -> WebAnswer:
    return await site.answer(WebRequest(method, path, {}, {"host": "localhost"} | headers), caller or WebCaller("me"))


def basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


async def test_a_page_comes_with_what_keeps_a_browser_to_it() -> None:
    answer = await ask(site())
    assert (answer.status, answer.body) == (200, b"the page\n")
    assert set(PRUDENCE) <= set(answer.headers)
    policy = dict(answer.headers)["Content-Security-Policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/", "/nothing", "/healthz"])
async def test_it_shows_and_does_not_command(method: str, path: str) -> None:
    answer = await ask(site(), path, method)
    assert answer.status == 405
    assert ("Allow", "GET, HEAD") in answer.headers


async def test_a_page_that_there_is_not_says_which_there_are() -> None:
    answer = await ask(site(), "/metric")
    assert (answer.status, answer.body) == (404, b"there is no such page, expected one of /, /healthz, /broken\n")


@pytest.mark.parametrize("name", ["localhost", "localhost:9090", "127.0.0.1:9090", "127.3.2.1", "[::1]:9090", "[::1]"])
async def test_on_loopback_it_answers_to_names_of_loopback(name: str) -> None:
    assert (await ask(site(), host=name)).status == 200


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:9090", "127.0.0.1.evil.example", "", "192.0.2.1", "[::2]"]
)
async def test_on_loopback_it_answers_to_no_other_name(name: str) -> None:
    for path in PAGES:
        assert (await ask(site(), path, host=name)).status == 421


async def test_on_loopback_it_answers_who_names_nobody() -> None:
    """Health checks in HTTP/1.0 do, and no browser does."""
    assert (await site().answer(WebRequest("GET", "/healthz", {}, {}), WebCaller("me"))).status == 200


async def test_elsewhere_its_name_is_anybodys_business() -> None:
    assert (await ask(site("0.0.0.0"), host="mesh.example:9090")).status == 200


async def test_where_passwords_are_heard_who_says_none_is_asked_for_it() -> None:
    closed = site(keys=Keys(), anybody=False, passwords=True)
    answer = await ask(closed)
    assert answer.status == 401
    assert ("WWW-Authenticate", 'Basic realm="oncemesh", charset="UTF-8"') in answer.headers
    assert ("Connection", "close") not in answer.headers, "a browser asks without a password first"
    assert (await ask(closed, "/healthz")).status == 200


@pytest.mark.parametrize(
    "said",
    [
        basic("alice", "wrong"),
        basic("mallory", "mallory's: word"),
        basic("", ""),
        "Basic !!",
        "Basic /w==",
        "Basic ÿ",
        "Bearer x",
        "Basic",
    ],
)
async def test_a_wrong_password_lets_nobody_in_and_costs_a_connection(said: str) -> None:
    closed, wrong = site(keys=Keys(), anybody=False, passwords=True), list[str]()
    caller = WebCaller("me", denied=lambda: wrong.append(said))
    answer = await ask(closed, caller=caller, authorization=said)
    assert answer.status == 401 and ("Connection", "close") in answer.headers
    assert wrong == [said]


async def test_a_password_is_proven_once_a_connection() -> None:
    keys, caller = Keys(), WebCaller("me")
    closed = site(keys=keys, anybody=False, passwords=True)
    for _ in range(3):
        assert (await ask(closed, caller=caller, authorization=basic("alice", "alice's: word"))).status == 200
    assert keys.asked == 1
    assert (await ask(closed, caller=caller, authorization=basic("alice", "other"))).status == 401
    assert (await ask(closed, authorization=basic("bob", "bob's: word"))).status == 403


async def test_who_has_shown_a_certificate_needs_no_password() -> None:
    closed = site(keys=Keys(), anybody=False)
    assert (await ask(closed, caller=WebCaller("me", certified="alice"))).status == 200
    assert (await ask(closed, caller=WebCaller("me", certified="bob"))).status == 403
    assert (await ask(closed)).status == 403


async def test_strangers_who_may_not_see_all_links_see_none() -> None:
    assert (await ask(site(keys=Keys()))).status == 403
    assert (await ask(site(keys=Keys()), "/healthz")).status == 200


async def test_a_page_that_fails_ends_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    answer = await ask(site(), "/broken")
    assert (answer.status, answer.body) == (500, b"this page cannot be served; the router's log has the reason\n")
    assert "a bug" in caplog.text
