"""The console, in a real browser: what each of its views shows of a mesh that is well, that waits, and that breaks.

publisher -> a
            / \\
           b---c -> subscriber
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from failover.client.management import Management
from router.amqp.format.values import REJECTED
from router.entities.queues import DECLARED_QUEUE
from tests.processes.clients import Clients, client_of, hold
from tests.processes.mesh import RunningMesh, running
from tests.processes.pair import LASTING
from tests.router.http.browser import Seen, browser

TOPIC = "topic/console"
MARKUP = "<img src=x onerror=document.title='run'>"
TURNED = MARKUP + "\u202e"
"""A name that would turn around what is shown behind it."""
SHOWN = MARKUP + "\\u202e"
TAB, ENTER = "\ue004", "\ue007"


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def mesh(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("triangle", tmp_path_factory.mktemp("triangle"), http=True) as found:
        yield found


@pytest.fixture
def page(driver: Any) -> Seen:
    return Seen(driver)


def url(mesh: RunningMesh, router: str) -> str:
    return f"http://{mesh.http(router)}/"


async def test_a_quiet_mesh_is_drawn_and_told(mesh: RunningMesh, page: Seen, clients: Clients) -> None:
    subscriber = await clients.subscriber(mesh.address("c"), TOPIC)
    publisher = await clients.publisher(mesh.address("a"), TOPIC, "writer")
    for _ in range(20):
        publisher.send(b"hello")
    await page.open(url(mesh, "b"))
    await page.until("#headline", lambda texts: texts == ["3 routers ready"])
    assert await page.texts("#mesh, #by") == ["triangle", "b"]
    assert await page.texts("#map .name") == ["a", "b", "c"]
    assert len(await page.texts("#map .wire:not(.down)")) == 3
    assert [text.split()[:2] for text in await page.texts("#routers tbody tr")] == [[name, "ready"] for name in "abc"]
    listed = await page.until("#clients tbody tr", lambda texts: len(texts) == 2)
    assert listed[0].startswith(f"writer/{publisher.link.name} {TOPIC} a attached 20 ")
    assert listed[1].startswith(f"subscriber/{subscriber.link.name} {TOPIC} c attached 20 ")
    assert len(await page.texts("#map path.publisher")) == len(await page.texts("#map circle.subscriber")) == 1
    await page.until("#events li", lambda texts: any("publisher writer/" in t and "attached" in t for t in texts))
    assert await page.complaints() == []
    client_of(publisher).close()
    client_of(subscriber).close()


async def test_rates_are_drawn(mesh: RunningMesh, page: Seen, clients: Clients, nursery: trio.Nursery) -> None:
    subscriber = await clients.subscriber(mesh.address("c"), TOPIC)
    publisher = await clients.publisher(mesh.address("a"), TOPIC)

    async def publish() -> None:
        while True:
            publisher.send(bytes(1000))
            await trio.sleep(0.01)

    await page.open(url(mesh, "a"))
    nursery.start_soon(publish)
    await page.until("#chart-rate figcaption b", lambda texts: all(flows(text) for text in texts))
    await page.until("#map .rate-in", lambda texts: len(texts) == 3 and flows(texts[0].removeprefix("in ")))
    await page.until("#map text:not(.quiet)", lambda texts: any(text.endswith("kB/s") for text in texts))
    assert "L" in await page.run("return document.querySelector('#chart-rate path.in').getAttribute('d')")
    await page.until("#chart-mean figcaption b", lambda texts: texts != ["none"])
    client_of(publisher).close()
    client_of(subscriber).close()
    nursery.cancel_scope.cancel()


async def test_who_waits_for_a_suspended_subscriber_is_told_and_a_delivery_of_it_found(
    mesh: RunningMesh, page: Seen, clients: Clients
) -> None:
    subscriber = await clients.subscriber(mesh.address("c"), TOPIC, TURNED, respond=hold, **LASTING)
    publisher = await clients.publisher(mesh.address("a"), TOPIC, "writer")
    publisher.send(b"one")
    await clients.until(lambda: len(subscriber.received) == 1)
    client_of(subscriber).vanish()
    await page.open(url(mesh, "b"))
    await page.until("#headline", lambda texts: "over 1 s" in texts[0])
    waits = await page.until("#waits tbody tr", lambda texts: any("subscriber" in text for text in texts))
    assert any(text.startswith(f"writer/{publisher.link.name} on {TOPIC} subscriber {SHOWN}/") for text in waits)
    assert len(await page.texts("#map circle.away")) == 1
    assert [text for text in await page.texts("#clients tbody tr") if "suspended" in text]
    await page.type("#sought", f"0{ENTER}")
    story = (await page.until("#story", lambda texts: "its home" in texts[0]))[0]
    assert f"publisher writer/{publisher.link.name} on {TOPIC}" in story and "a, its home: in doubt" in story
    assert f"subscriber {SHOWN}/{subscriber.link.name} on {TOPIC}: sent" in story
    assert await page.run("return document.querySelectorAll('main img').length") == 0, "names are text, never markup"
    assert (await page.run("return document.title")) != "run"
    again = await clients.subscriber(mesh.address("c"), TOPIC, TURNED, **LASTING)
    await clients.until(lambda: len(publisher.accepted) == 1)
    await page.until("#nobody", lambda texts: texts != [""])
    again.link.detach(closed=True)
    client_of(again).connection.wake()
    client_of(publisher).close()


async def test_keys_alone_choose_a_router_and_a_phone_shows_all_of_it(mesh: RunningMesh, page: Seen) -> None:
    await page.open(url(mesh, "a"), width=390, height=844)
    await page.until("#headline", lambda texts: texts == ["3 routers ready"])
    assert await page.run("return document.documentElement.scrollWidth") <= 390
    for _ in range(10):
        await page.press(TAB)
        if await page.run("return document.activeElement.closest('.router') !== null"):
            break
    chosen = await page.run("return document.activeElement.getAttribute('aria-label')")
    assert chosen.startswith("router a, ready, 0/s in, 0/s out, 0 publishers, 0 subscribers")
    await page.press(ENTER)
    await page.until("#unselect", lambda texts: texts == ["only router a; show all routers"])
    assert await page.run("return document.querySelector('.router.selected').getAttribute('aria-pressed')") == "true"
    unnamed = "return [...document.querySelectorAll('input, select, button')].filter((one) => !one.labels?.length"
    unnamed += " && !one.getAttribute('aria-label') && !one.textContent.trim()).map((one) => one.outerHTML)"
    assert await page.run(unnamed) == []


@pytest.fixture
def queues(driver: Any, tmp_path: Path) -> Iterator[RunningMesh]:
    with running("queues", tmp_path, http=True, queues={"sets": 1, "replicas": 3}) as found:
        yield found


async def test_queues_are_listed_with_what_is_in_them(queues: RunningMesh, page: Seen, clients: Clients) -> None:
    name = f"queue/{TURNED}"
    publisher = await clients.publisher(queues.address("a"), name)
    other = await clients.publisher(queues.address("b"), "queue/other")
    for number in range(3):
        publisher.send(b"%d" % number)
    other.send(b"0")
    await clients.until(lambda: len(publisher.accepted) == 3 and len(other.accepted) == 1)
    await page.open(url(queues, "b"))
    rows = await page.until("#queues tbody tr", lambda texts: len(texts) == 2)
    assert rows[0].startswith(f"queue/{SHOWN} q0 ") and rows[1].startswith("queue/other q0 ")
    assert " 3 " in rows[0] and " 0 0/s 0/s" in rows[0], "without consumers, and nothing moves"
    subscriber = await clients.subscriber(queues.address("c"), name, respond=hold)
    await clients.until(lambda: len(subscriber.received) == 3)
    await page.until("#queues tbody tr", lambda texts: texts[0].endswith(" 1 0/s 0/s"))
    for delivery in subscriber.received:
        delivery.accept()
    await page.until("#queues tbody tr", lambda texts: texts[0].startswith("queue/other q0 "))
    assert await page.run("return document.querySelectorAll('main img').length") == 0, "names are text, never markup"
    assert await page.texts("#more-queues") == [""] and await page.complaints() == []


async def test_a_queue_is_shown_with_its_replicas_consumers_and_first_messages(
    queues: RunningMesh, page: Seen, clients: Clients
) -> None:
    name = f"queue/{MARKUP}"
    async with Management([f"amqp://{queues.address('a')}"]) as management:
        settings = {"deadLetter": "queue/dead", "limitMessages": 9}
        await management.ask("CREATE", None, settings, type=DECLARED_QUEUE.managed, name=name)
    publisher = await clients.publisher(queues.address("a"), name)
    for body in (b"bad", MARKUP.encode(), b"last"):
        publisher.send(body)
    subscriber = await clients.subscriber(queues.address("c"), name, respond=hold)
    await clients.until(lambda: len(publisher.accepted) == len(subscriber.received) == 3)
    subscriber.received[0].give(REJECTED)
    await page.open(url(queues, "b"))
    await page.complaints()  # of a page before this one, whose router has ended
    await page.until("#queues tbody tr", lambda texts: len(texts) == 2)
    await page.run("document.querySelector('#queues tbody button').click()")
    await page.until("#queue-about", lambda texts: "3 came" in texts[0] and "1 gone to another address" in texts[0])
    assert await page.texts("#queue-name") == [name]
    rows = await page.until("#replicas tbody tr", lambda texts: len(texts) == 3)
    assert sorted(text.split(maxsplit=1)[1] for text in rows) == ["leader has all", "voter has all", "voter has all"]
    consumers = await page.texts("#consumers tbody tr")
    assert len(consumers) == 1 and consumers[0].startswith(f"subscriber/{subscriber.link.name} c attached 2 ")
    await page.run("document.getElementById('peek').click()")
    shown = await page.until("#peeked li", lambda texts: len(texts) == 2)
    assert shown[0].endswith(f"at consumer subscriber {MARKUP}") and shown[1].endswith(" last")
    assert "dead_letter queue/dead" in (await page.texts("#peeked"))[0]
    dead = (
        "[...document.querySelectorAll('#queues tbody button')].find((one) => one.innerText === 'queue/dead').click()"
    )
    await page.run(dead)
    await page.run("document.getElementById('peek').click()")
    shown = await page.until("#peeked li", lambda texts: len(texts) == 1)
    assert f"dead letter of {name}: rejected" in shown[0]
    assert (await page.texts("#stops"))[0].startswith("you may stop any one router")
    assert await page.run("return document.querySelectorAll('main img').length") == 0, "names are text, never markup"
    queues.signal("c", signal.SIGKILL)
    await page.until("#stops", lambda texts: texts[0].startswith("do not stop router"))
    await page.until("#replicas tbody tr", lambda texts: any(text.startswith("c voter away") for text in texts))
    await page.until("#no-consumers", lambda texts: texts == ["No consumers."])
    assert await page.complaints() == []
    await queues.ending("c")
    await queues.start("c")


async def test_dark_and_light_are_both_legible(mesh: RunningMesh, page: Seen, driver: Any) -> None:
    seen = {}
    for scheme in ("dark", "light"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        await trio.to_thread.run_sync(driver.execute_cdp_cmd, "Emulation.setEmulatedMedia", media)
        await page.open(url(mesh, "a"))
        await page.until("#headline", lambda texts: texts == ["3 routers ready"])
        seen[scheme] = await page.run(
            "const of = (one) => getComputedStyle(document.querySelector(one));"
            "return [[of('main .panel').color, of('main .panel').backgroundColor],"
            " [of('.quiet').color, of('main .panel').backgroundColor],"
            " [of('#headline').color, of('#headline').backgroundColor]]"
        )
    assert seen["dark"] != seen["light"]
    for pairs in seen.values():
        assert all(contrast(*pair) >= 4.5 for pair in pairs), "as WCAG asks for text"


def flows(rate: str) -> bool:
    return rate.endswith("/s") and rate != "0/s"


def contrast(one: str, other: str) -> float:
    """Of two colours as a browser tells them."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.fixture
def own_mesh(driver: Any, tmp_path: Path) -> Iterator[RunningMesh]:
    with running("triangle", tmp_path, http=True) as found:
        yield found


async def test_a_mesh_that_breaks_is_seen_to_break(own_mesh: RunningMesh, page: Seen, clients: Clients) -> None:
    await page.open(url(own_mesh, "b"))
    await page.until("#headline", lambda texts: texts == ["3 routers ready"])
    own_mesh.signal("c", signal.SIGKILL)
    await page.until("#headline", lambda texts: texts == ["router c out of contact"])
    assert len(await page.texts("#map .wire.down")) == 2
    assert await page.run("return document.querySelector('#map .router.bad .name').textContent") == "c"
    await page.until("#events li", lambda texts: any("lost contact with router c" in text for text in texts))
    assert any("out of contact" in text for text in await page.texts("#routers tbody tr"))
    await own_mesh.ending("c")
    await own_mesh.start("c")
    await page.until("#headline", lambda texts: texts == ["3 routers ready"])
    own_mesh.signal("b", signal.SIGKILL)
    await page.until("#headline", lambda texts: texts == ["no news from router b"])
    assert (await page.texts("#stream"))[0].endswith("connection lost, trying again")
    await own_mesh.ending("b")
    await own_mesh.start("b")
    await page.until("#headline", lambda texts: texts == ["3 routers ready"])
