"""Checks a mesh at rest: every delivery has an outcome, and nothing is left over anywhere."""

from typing import TYPE_CHECKING

from tests.simulation.balanced import stranded
from tests.simulation.client import Client
from tests.simulation.publisher import Publisher
from topic.core import Topic
from topic.directory.entry import Role
from topic.identity import LinkIdentity

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.router import Router
    from tests.simulation.world import World


def check_quiescence(world: "World") -> None:
    judge = world.judge
    if world.sets is not None:
        judge.check(not (unrest := world.sets.unrest()), unrest)
        judge.check(not (unrest := judge.queues.unrest()), unrest)
    for client in world.clients:
        attached = client.link is not None and client.answered
        judge.check(attached or client.gone, f"5 liveness: {client.name} is not attached")
    for message in [message for message in judge.messages.values() if message.told]:
        missing = [name for name in sorted(message.promised) if message.text not in judge.readers[name].final]
        judge.check(not missing, f"2 kept: {message.text.decode()} was answered, and {missing} never had it")
    waits = stranded(world) | judge.queues.waits()
    for subscriber in [subscriber for subscriber in world.subscribers if subscriber.name not in waits]:
        judge.check(not subscriber.unsettled, f"4 unsettled: {subscriber.name} keeps {subscriber.texts}")
    untold = [client.name for client in world.subscribers if not client.gone and judge.untold.get(client.name)]
    judge.check(not untold, f"2 told: nobody told {untold} what was accepted without it")
    silently = judge.plain.untold()
    judge.check(not silently, f"2 told: plain subscribers have missed something, and their links last: {silently}")
    for publisher in [
        publisher for publisher in world.publishers if not publisher.gone and publisher.name not in waits
    ]:
        waiting = [text.decode() for text in publisher.waiting]
        judge.check(not waiting, f"5 liveness: {publisher.name} has no outcome of {waiting[:5]}")
        left = publisher.left_to_send
        judge.check(not left, f"5 liveness: {publisher.name} has {left} messages left to send")
        judge.check(not publisher.unsettled, f"4 unsettled: {publisher.name} keeps {publisher.unsettled}")
        knobs = world.knobs
        most = min(knobs.window, max(1, knobs.window_bytes // knobs.message))
        judge.check(publisher.credit == most, f"4 credit: {publisher.name} has {publisher.credit}")
    alive = [router for router in world.routers.values() if router.alive]
    for router in alive:
        _check_plan(judge, router, alive)
        if not (waits or judge.queues.stranded()):
            _check_empty(judge, router, everybody=router.mesh.plan.members <= {other.name for other in alive})
        _check_directory(world, router, len(alive) - 1)


def _check_plan(judge: "Judge", router: "Router", alive: "list[Router]") -> None:
    """Check that all routers have the same plan, and no trace of removed routers."""
    plan, mesh = router.mesh.plan, router.mesh
    said = plan.changed(), plan.listed, [plan.costs_of(other.name) for other in alive]
    for other in alive:
        theirs = other.mesh.plan
        again = theirs.changed(), theirs.listed, [theirs.costs_of(one.name) for one in alive]
        judge.check(said == again, f"11 plan: {router.name} has {said}, and {other.name} {again}")
    judge.check(router.name in plan.members, f"11 plan: {router.name} is there, and no member")
    known = {*mesh._linkstate.database.entries, *mesh._contacts._contacts, *router.topic.directory.members.acked}
    judge.check(known <= plan.listed, f"11 plan: {router.name} knows {known - plan.listed}")


def _check_empty(judge: "Judge", router: "Router", *, everybody: bool) -> None:
    for what, left in _leftovers(router.topic).items():
        if what != "tombstones" or everybody:
            judge.check(not left, f"4 leak: {what} left at {router.name}: {left!r:.300}")


def _leftovers(topic: Topic) -> dict[str, object]:
    """Everything that must be empty at rest, keyed by name."""
    home, edge, directory = topic.home, topic.edge, topic.directory
    homed, edged = home.streams.values(), edge.streams.values()
    subscribers = edge.subscribers.values()
    return {
        "records": [record.message or record.key for record in topic.records.by_key.values()],
        "records of streams": [stream.records for stream in (*homed, *edged) if stream.records],
        "withheld": [
            *(s.withheld for s in homed if s.withheld),
            *(s.withheld_at_edge for s in edged if s.withheld_at_edge),
        ],
        "messages gone ahead": [stream.ahead for stream in homed if stream.ahead],
        "pieces": topic.peers.bodies.come,
        "full routers": home.publishing._full,
        "publishers that wait for room": home.publishing._queue,
        "busy keys": list(topic.records.busy_keys),
        "gates": [stream.gates for stream in homed if stream.gates],
        "unsettled": [stream.window.unsettled for stream in homed if stream.window.unsettled],
        "gated": [subscriber.gated for subscriber in subscribers if subscriber.gated],
        "ready": [subscriber.ready for subscriber in subscribers if subscriber.ready],
        "resuming": [subscriber.resuming for subscriber in subscribers if subscriber.resuming],
        "attempts": [subscriber.attempts for subscriber in subscribers if subscriber.attempts],
        "unjoined": [names for names in edge.reports.unjoined.values() if names],
        "unreported": list(edge.reports.unreported),
        "departures": list(directory.departures),
        "announced": list(directory._announced),
        "tombstones": list(directory._tombstones),
        "waiting attaches": topic.attaches.waiting,
        "booting": topic.boot.waiting_for,
    }


def _check_directory(world: "World", router: "Router", others: int) -> None:
    """Check that each router knows every link and its router, and no other link, and that all have joined each
    subscriber.
    """
    judge, topic = world.judge, router.topic
    known = {((entry.role, entry.identity), entry.router) for entry in topic.directory.entries() if entry.live}
    real = {(_index(client), client.link.router.name) for client in world.clients if client.link is not None}
    real -= _overtaken(world, router) - known
    if world.sets is not None:
        known, real = known - world.sets.leaderless(known), real | world.sets.links()
    judge.check(known == real, f"4 directory: {router.name} knows {sorted(known)}, there are {sorted(real)}")
    judge.check(len(topic.directory.contacts) == others, f"5 liveness: {router.name} is not in contact with all")
    for subscriber in topic.edge.subscribers.values():
        judge.check(len(subscriber.joined) == others + 1, f"4 joined: {subscriber.identity} by {subscriber.joined}")
    streams = {stream.publisher for stream in topic.home.streams.values()}
    for name in topic.edge.streams:
        entry = topic.directory.publisher(name)
        judge.check(entry is not None and name not in streams, f"4 leak: stream left at {router.name}")


def _overtaken(world: "World", router: "Router") -> set[tuple[tuple[Role, LinkIdentity], str]]:
    """Plain publishers at other routers that this router may place wrongly. A router that read an older attach of the
    publisher late, and may be gone, took it for the newer one. The publisher's next message corrects that (protocol
    10)."""
    plain = [client for client in world.clients if isinstance(client, Publisher) and client.plain]
    here = [(client, client.link.router) for client in plain if client.link is not None]
    names = world.judge.memory.overtaken
    return {(_index(client), at.name) for client, at in here if at is not router and client.name in names}


def _index(client: Client) -> tuple[Role, LinkIdentity]:
    return Role.PUBLISHER if isinstance(client, Publisher) else Role.SUBSCRIBER, client.identity
