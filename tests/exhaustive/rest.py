"""Checks a world in which nothing but another fault can happen (protocol 9.4 and 9.5)."""

from collections.abc import Iterator
from itertools import combinations

from tests.exhaustive.clients import Client, Phase, Publisher, Stage, check
from tests.exhaustive.model import Model
from tests.exhaustive.router import Router
from tests.exhaustive.subscriber import Subscriber
from tests.exhaustive.world import UNTOLD, UP, Draft
from topic.core import Topic


def check_rest(model: Model, world: Draft) -> None:
    for number in world.clients:
        _check_client(model.clients.states.values[number])
    alive = [router for router, life in enumerate(world.lives) if life > 0]
    in_contact = all(world.status(one, other) == UP for one, other in combinations(alive, 2))
    check(in_contact, "5 liveness", "not all routers are in contact")
    for router in alive:
        _check_router(model.routers.load(world.routers[router]))
    for index, terms in enumerate(world.terms):
        check(not terms & UNTOLD, "2 apart and not told", f"subscriber {index} misses something and was not told")


def _check_client(client: Client) -> None:
    check(client.stage is Stage.ATTACHED, "5 liveness", f"the attach of client {client.index} is never answered")
    if isinstance(client, Publisher):
        done = all(phase in (Phase.SETTLED, Phase.LOST) for phase in client.phases)
        check(done, "5 liveness", f"publisher {client.index} is left with {[phase.name for phase in client.phases]}")
    elif isinstance(client, Subscriber):
        check(not client.held, "4 leak: unsettled map", f"subscriber {client.index} keeps {client.held}")


def _check_router(router: Router) -> None:
    assert router.topic is not None
    for what, left in leftovers(router.topic):
        check(not left, f"4 leak: {what}", f"left at {router.name}: {left!r:.300}")


def leftovers(topic: Topic) -> Iterator[tuple[str, object]]:
    """Everything that must be empty at rest, with its name."""
    home, edge, directory, records = topic.home, topic.edge, topic.directory, topic.records
    yield "records", [(record.key, record.state.name) for record in records.by_key.values()]
    yield "blocked keys", list(records.busy_keys)
    for stream in [*home.streams.values(), *edge.streams.values()]:
        yield "records of streams", list(stream.records)
        yield "withheld", list(stream.withheld_at_edge)
    for stream in home.streams.values():
        yield "withheld", list(stream.withheld)
        yield "gates", list(stream.gates)
    yield "credit", [stream.window.unsettled for stream in home.streams.values() if stream.window.unsettled]
    for subscriber in edge.subscribers.values():
        yield "gated", list(subscriber.gated)
        yield "ready", list(subscriber.ready)
        yield "unjoined", set(directory.contacts) - subscriber.joined
        yield "unread", list(subscriber.unread)
    yield "unjoined", [home for home, names in edge.reports.unjoined.items() if names]
    yield "departures", list(directory.departures)
    yield "lapsed", [*directory.lapsed, *directory._entries._untold._at]
    yield "announced", list(directory._announced)
    yield "tombstones", list(directory._tombstones)
    yield "waiting attaches", topic.attaches.waiting
    yield "booting", topic.boot.waiting_for
