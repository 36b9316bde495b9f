"""What routers show over HTTP: that it is true, that it is documented, and that it is used.

publisher -> a---b -> subscriber
"""

import json
import re
import shutil
import ssl
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from failover.client import ClientError, Subscriber
from failover.client.management import Management
from router.amqp.format.errors import NOT_FOUND
from router.amqp.sasl.scram import Verifier
from router.entities.catalogue import ENTITIES
from router.entities.queues import LED_QUEUE
from router.entities.replicas import SET
from router.events.kind import EventKind
from router.mesh.topology import load
from router.security.certs import issue_all
from router.security.users import UserFile, write_users
from tests.processes.clients import Clients, hold
from tests.processes.mesh import TOPOLOGIES, RunningMesh, eventually, running
from tests.router.http.web import ask

DOCS = Path(__file__).parents[2] / "docs"
ALERTS, DASHBOARD = DOCS / "monitoring" / "alerts.yaml", DOCS / "monitoring" / "grafana.json"
NAME = re.compile(r"\b(?:oncemesh|qdr|process)_[a-z_]+\b")
TOPIC = "topic/monitored"
OF_SETS = {one.series.name: set(one.series.labels) for one in SET.attributes + LED_QUEUE.attributes if one.series}
"""Series that there are in a mesh with queues, with their labels."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("pair", tmp_path_factory.mktemp("pair"), http=True) as mesh:
        yield mesh


@pytest.fixture
def own_pair(tmp_path: Path) -> Iterator[RunningMesh]:
    with running("pair", tmp_path, http=True) as mesh:
        yield mesh


async def scrape(mesh: RunningMesh, router: str) -> dict[str, Metric]:
    """By the names of the samples, as queries know them."""
    reply = await ask(mesh.http(router), "/metrics")
    assert reply.status == 200 and reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {s.name: family for family in text_string_to_metric_families(reply.text) for s in family.samples}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    [found] = [s.value for s in families[name].samples if s.name == name and labels.items() <= s.labels.items()]
    return found


def expressions(node: Any) -> Iterator[str]:
    """Of whatever panels and targets there are."""
    if isinstance(node, dict):
        yield from (text for key, text in node.items() if key == "expr")
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from expressions(part)


async def test_every_series_is_documented_and_used_and_no_other_is(pair: RunningMesh) -> None:
    live = set(await scrape(pair, "a"))
    documented = set(re.findall(r"^\| `([a-z_]+)` \|", (DOCS / "monitoring.md").read_text(), re.MULTILINE))
    used = set(NAME.findall(" ".join(expressions(json.loads(DASHBOARD.read_text())))))
    used |= set(NAME.findall(" ".join(expressions(yaml.safe_load(ALERTS.read_text())))))
    assert live | {*OF_SETS} == documented == used
    named = {series.name for entity in ENTITIES for one in entity.attributes if (series := one.series)}
    assert named <= live | {*OF_SETS}


async def test_labels_are_what_the_documentation_says(pair: RunningMesh) -> None:
    live = {name: set(family.samples[0].labels) for name, family in (await scrape(pair, "a")).items()}
    rows = re.findall(r"^\| `([a-z_]+)` \|([^|]*)\|", (DOCS / "monitoring.md").read_text(), re.MULTILINE)
    assert live | OF_SETS == {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def test_every_alert_is_documented() -> None:
    named = {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
    assert named == set(re.findall(r"`(Oncemesh\w+)`", (DOCS / "monitoring.md").read_text()))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's prometheus) is not installed")
async def test_prometheus_takes_rules_and_metrics_as_they_are(pair: RunningMesh) -> None:
    await trio.run_process(["promtool", "check", "rules", str(ALERTS)], capture_stdout=True)
    text = (await ask(pair.http("a"), "/metrics")).text
    checked = await trio.run_process(
        ["promtool", "check", "metrics"], stdin=text.encode(), capture_stderr=True, check=False
    )
    complaints = [line for line in checked.stderr.decode().splitlines() if not line.startswith("qdr_")]
    assert complaints == [], "names in qdr_ are skupper-router's"


async def test_metrics_count_what_clients_do(pair: RunningMesh, clients: Clients) -> None:
    before = await scrape(pair, "a"), await scrape(pair, "b")
    publisher = await clients.publisher(pair.address("a"), TOPIC)
    subscriber = await clients.subscriber(pair.address("b"), TOPIC, respond=hold)
    for number in range(5):
        publisher.send(b"%d" % number)
    await clients.until(lambda: len(subscriber.received) == 5)
    home, edge = await scrape(pair, "a"), await scrape(pair, "b")
    for now, then, name in (
        (home, before[0], "qdr_deliveries_ingress_total"),
        (edge, before[1], "qdr_deliveries_egress_total"),
    ):
        grown = {kind: value(now, name, kind=kind) - value(then, name, kind=kind) for kind in ("topic", "balanced")}
        assert grown == {"topic": 5, "balanced": 0}
    assert value(home, "oncemesh_records", state="in_doubt") == 5
    assert value(home, "oncemesh_message_bytes") >= 5
    assert value(home, "oncemesh_publishers", status="attached") == 1
    assert value(edge, "oncemesh_subscribers", status="attached") == 1
    assert value(home, "oncemesh_contact", peer="b") == value(home, "oncemesh_neighbour_up", neighbour="b") == 1
    assert value(home, "oncemesh_neighbour_sent_bytes_total", neighbour="b") > 0
    attached = "oncemesh_events_total"
    assert value(home, attached, kind="attached") - value(before[0], attached, kind="attached") == 1

    async def seen_to_wait() -> bool:
        return value(await scrape(pair, "a"), "oncemesh_oldest_in_doubt_seconds") > 0

    await eventually(seen_to_wait)
    for delivery in subscriber.received:
        delivery.accept()
    await clients.until(lambda: len(publisher.accepted) == 5)
    subscriber.link.connection.close()
    edge = await scrape(pair, "b")
    assert value(edge, "qdr_accepted_deliveries_total", kind="topic") == 5 + value(
        before[1], "qdr_accepted_deliveries_total", kind="topic"
    )


async def test_there_are_as_many_series_whatever_clients_do(pair: RunningMesh, clients: Clients) -> None:
    async def samples() -> int:
        families = {family.name: family for family in (await scrape(pair, "a")).values()}
        return sum(len(family.samples) for family in families.values())

    before = await samples()
    client = await clients.connect(pair.address("a"), "of many names")
    links = [client.subscriber(f"topic/{number}", f'a "name" \\ {number}\n') for number in range(200)]
    await clients.until(lambda: all(link.attached for link in links))
    assert await samples() == before
    client.close()


async def test_a_router_is_ready_once_it_has_heard_of_the_others_and_until_it_drains(own_pair: RunningMesh) -> None:
    assert (await ask(own_pair.http("a"), "/readyz")).status == 200
    await own_pair.stop("a")
    await own_pair.stop("b")
    own_pair.begin("a")

    async def answers() -> bool:
        try:
            return (await ask(own_pair.http("a"), "/healthz")).status == 200
        except OSError:
            return False

    await eventually(answers)
    reply = await ask(own_pair.http("a"), "/readyz")
    assert (reply.status, reply.text) == (503, "this router waits for b\n")
    own_pair.begin("b")

    async def ready() -> bool:
        return (await ask(own_pair.http("a"), "/readyz")).status == 200

    await eventually(ready)
    assert value(await scrape(own_pair, "a"), "oncemesh_events_total", kind=EventKind.BOOT) == 1


async def test_an_attach_that_is_refused_is_logged_told_and_counted(pair: RunningMesh) -> None:
    async def refusals() -> float:
        return value(await scrape(pair, "a"), "oncemesh_attaches_refused_total", condition=NOT_FOUND)

    url, before = f"amqp://{pair.address('a')}", await refusals()
    with pytest.raises(ClientError, match="no node 'nowhere/x'"):
        async with Subscriber([url], "nowhere/x", container="lost", link="l"):
            pass
    assert await refusals() == before + 1
    assert f"subscriber lost/l is refused: {NOT_FOUND}: no node 'nowhere/x'" in pair.log("a")
    async with Management([url]) as management:
        [told] = [
            event for event in await management.ask("GET-EVENTS", "a", since=0) if event.get("container") == "lost"
        ]
    assert (told["kind"], told["condition"], told["address"]) == ("refused", NOT_FOUND, "nowhere/x")


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningMesh, Path]]:
    """With certificates, users and rules."""
    folder = tmp_path_factory.mktemp("closed")
    issue_all(load(TOPOLOGIES / "pair.yaml"), folder / "certs", ["alice"])
    write_users(folder / "users", UserFile({"bob": Verifier.of("open sesame"), "carol": Verifier.of("hum")}))
    (folder / "rules").write_text("carol: {send: []}\n")
    files = {"certificate": "certs/{router}.pem", "key": "certs/{router}.key", "ca": "certs/ca.pem"}
    with running("pair", folder, security=files | {"users": "users", "rules": "rules"}, http=True) as mesh:
        yield mesh, folder


async def test_who_looks_over_tls_shows_who_he_is(closed: tuple[RunningMesh, Path]) -> None:
    mesh, folder = closed
    at, anonymous = mesh.http("a"), tls(folder)
    assert (await ask(at, "/healthz", context=anonymous)).status == 200
    assert (await ask(at, "/metrics", context=anonymous)).status == 401
    for user, password, status in (("bob", "open sesame", 200), ("bob", "hum", 401), ("carol", "hum", 403)):
        reply = await ask(at, "/metrics", basic(user, password), context=anonymous)
        assert reply.status == status, (user, reply.text)
    assert (await ask(at, "/metrics", context=tls(folder, "alice"))).status == 200
    reply = await ask(at, "/queue?name=queue/x", basic("bob", "open sesame"), context=anonymous)
    assert (reply.status, "only operators" in reply.text) == (403, True)
    with pytest.raises((OSError, HTTPException)):
        await ask(at, "/healthz")  # without TLS


def tls(folder: Path, user: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "certs" / "ca.pem"))
    context.check_hostname = False
    if user:
        context.load_cert_chain(folder / "certs" / f"{user}.pem", folder / "certs" / f"{user}.key")
    return context


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}
