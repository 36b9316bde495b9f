"""Makes a picture of the mesh, as JSON for the console, from the routers' reports.

Rates are counted since the last look (`router.entities.rates`). Lists are bounded, and the rest is only counted."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from router.entities.links import PUBLISHER, SUBSCRIBER
from router.entities.rates import QueueRate, RouterLook, RouterRate, Row, neighbour_rates, queue_rates, router_rates
from router.http.gathering import MeshLook
from router.mesh.shown.sets import ShownSet, queues_in, sets_in
from router.mesh.shown.waits import LASTING_S, lasting

MOST_CLIENTS: Final = 100
"""The highest number of publishers of each router that a picture lists, and the highest number of subscribers."""
MOST_QUEUES: Final = 100
FIGURES: Final = (
    "messages",
    "bytes",
    "reserved",
    "paused",
    "scheduled",
    "oldest_s",
    "consumers",
    "enqueued",
    "dequeued",
    "given_back",
    "purged",
    "expired",
    "outbox",
    "dead",
)
"""The figures of a queue that the picture shows."""
MOST_WAITS: Final = 50


class Painter:
    """Makes the pictures of one mesh, one for each look."""

    def __init__(self) -> None:
        self._before: dict[str, RouterLook] = {}
        self._away: dict[str, float] = {}

    def picture(self, seen: MeshLook) -> Row:
        busy = {one.router: one for one in router_rates(self._before, seen.answers)}
        sent = {(one.router, one.neighbour): one.bytes or 0.0 for one in neighbour_rates(self._before, seen.answers)}
        routers = [self._router(row, seen, busy.get(row["name"])) for row in seen.plan]
        self._away = {one["name"]: seen.time - one["away_s"] for one in routers if "away_s" in one}
        flows = {(one.router, one.queue): one for one in queue_rates(self._before, seen.answers)}
        queues, more_queues = _queues(seen, flows)
        self._before = seen.answers
        return {
            "mesh": seen.mesh,
            "by": seen.by,
            "time": seen.time,
            "routers": routers,
            "links": list(_links(seen, sent)),
            "clients": [client for answer in seen.answers.values() for client in _clients(answer.status)],
            "sets": list(_sets(seen)),
            "queues": queues,
            "more_queues": more_queues,
            "waits": sorted(_waits(seen), key=lambda wait: -float(wait["since_s"]))[:MOST_WAITS],
            "told": list(_told(seen)),
            "point": _point(seen.time, routers),
        }

    def _router(self, row: Row, seen: MeshLook, rates: RouterRate | None) -> Row:
        name = row["name"]
        answer = seen.answers.get(name)
        if answer is None:
            state = "no answer" if row["inContact"] else "out of contact"
            away_s = seen.time - self._away.get(name, seen.time)
            return {"name": name, "standing": row["standing"], "state": state, "away_s": round(away_s, 1)}
        status = answer.status
        return {
            "name": name,
            "standing": row["standing"],
            **{key: status[key] for key in ("state", "waiting_for", "uptime_s", "rss_bytes", "connections")},
            **{key: status[key] for key in ("records", "message_bytes")},
            "publishers": len(status["publishers"]),
            "subscribers": len(status["subscribers"]),
            "unsettled": sum(publisher["unsettled"] for publisher in status["publishers"]),
            "ingress": rates.received if rates is not None else 0.0,
            "egress": rates.delivered if rates is not None else 0.0,
        }


Sent = Mapping[tuple[str, str], float]
"""The bytes a second that one router sends to another, keyed by sender and receiver."""
Flows = Mapping[tuple[str, str], QueueRate]
"""Maps a leader and a queue to the queue's rates."""


def _links(seen: MeshLook, sent: Sent) -> Iterator[Row]:
    """The links between routers. Each is listed once, with the view of both ends."""
    known = {row["name"] for row in seen.plan}
    for row in seen.plan:
        for other, cost in sorted(row["neighbours"].items()):
            if row["name"] < other and other in known:
                yield _link(row["name"], other, cost, seen, sent)


def _link(a: str, b: str, cost: int, seen: MeshLook, sent: Sent) -> Row:
    there = [end for one, other in ((a, b), (b, a)) if (end := _end(seen.answers.get(one), other)) is not None]
    trips = [end["roundTripSeconds"] for end in there if end["roundTripSeconds"] is not None]
    return {
        "a": a,
        "b": b,
        "cost": cost,
        "up": bool(there) and all(end["up"] for end in there),
        "since_s": min((end["sinceSeconds"] for end in there), default=None),
        "a_to_b": sent.get((a, b), 0.0),
        "b_to_a": sent.get((b, a), 0.0),
        "round_trip_s": min(trips, default=None),
    }


def _end(answer: RouterLook | None, other: str) -> Row | None:
    return next((row for row in answer.neighbours if row["name"] == other), None) if answer is not None else None


def _clients(status: Row) -> Iterator[Row]:
    for kind in (PUBLISHER, SUBSCRIBER):
        for link in status[kind.status][:MOST_CLIENTS]:
            yield {"role": kind.name, "router": status["router"], **link}


def _waits(seen: MeshLook) -> Iterator[Row]:
    """The waits that have lasted for some time: the router, the waiting publisher, the awaited subscriber, and the
    seconds since the wait was first seen."""
    for wait in lasting(answer.status for answer in seen.answers.values()):
        held = wait.publishers
        who = held[0] if len(held) == 1 else f"{len(held)} publishers"
        yield _wait(wait.router, who, wait.awaited, wait.since_s, wait.records)
    for name, answer in seen.answers.items():
        status = answer.status
        awaited = {wait["for"] for wait in status["waits"]}
        for link in status["publishers"]:
            others = [name for name in link["held_for"] if name not in awaited]
            if others and link["held_s"] >= LASTING_S:
                who = f"{link['container']}/{link['link']} on {link['address']}"
                yield _wait(name, who, ", ".join(others[:3]), link["held_s"], link["unsettled"])
        attaches = status["attaches"]
        if attaches["for"] and attaches["since_s"] >= LASTING_S:
            routers = ", ".join(f"router {router}" for router in attaches["for"])
            yield _wait(name, f"{attaches['waiting']} attaches", routers, attaches["since_s"], 0)


def _shown_sets(seen: MeshLook) -> list[ShownSet]:
    return sets_in((name, row) for name, answer in seen.answers.items() for row in answer.status.get("sets", ()))


def _sets(seen: MeshLook) -> Iterator[Row]:
    """The replica sets, each once, by the report of one of its routers (`router.mesh.shown.sets`)."""
    for one in _shown_sets(seen):
        told = {
            key: one.best[key] for key in ("name", "prefix", "voters", "learners", "async", "behind", "queues", "term")
        }
        told |= {
            "away_s": one.best.get("away_s", {}),
            "roles": {router: row["role"] for router, row in one.rows.items()},
        }
        yield told | {"leader": one.leader, "unstored_bytes": one.best["unstored_bytes"], "needed": one.needed}


def _queues(seen: MeshLook, flows: Flows) -> tuple[list[Row], int]:
    """The deepest queues, and how many other queues there are."""
    rows = ((name, row) for name, answer in seen.answers.items() for row in answer.status.get("queues", ()))
    found, more = queues_in(_shown_sets(seen), rows)
    told = []
    for leader, row in found[:MOST_QUEUES]:
        flow = flows.get((leader, row["name"]))
        came, left = (flow.came, flow.left) if flow is not None else (0.0, 0.0)
        kept = {key: row[key] for key in ("name", "set", *FIGURES)}
        told.append(kept | {"leader": leader, "in": came, "out": left})
    return told, more + len(found[MOST_QUEUES:])


def _wait(router: str, who: str, awaited: str, since_s: float, records: int) -> Row:
    return {"router": router, "who": who, "for": awaited, "since_s": since_s, "records": records}


def _told(seen: MeshLook) -> Iterator[Row]:
    """The problems that an operator should look at."""
    for name, answer in seen.answers.items():
        status = answer.status
        if status["waiting_for"]:
            yield _about(name, f"accepts no messages until it has heard from {', '.join(status['waiting_for'])}")
        for link in status["lapsed"]:
            yield _about(name, f"no longer waits for {link['container']}/{link['link']} on {link['address']}")
        for link in status["untold"]:
            ended = f"{link['container']}/{link['link']} on {link['address']} was ended"
            yield _about(name, f"{ended}, and its client does not know yet: {link['ending']}")
        disk = status["disk"]
        if disk["log"]:
            yield _about(name, f"cannot write its delivery log: {disk['log']}")
        if disk.get("queues"):
            yield _about(name, f"cannot write its replica sets: {disk['queues']}")
        if disk["store"]:
            yield _about(name, f"refuses new durable links: {disk['store']}")
        for row in status.get("sets", ()):
            if row["why_aside"]:
                yield _about(name, f"set its store of replica set {row['name']} aside: {row['why_aside']}")


def _about(router: str, text: str) -> Row:
    return {"router": router, "text": text}


def _point(time_s: float, routers: list[Row]) -> Row:
    """One point of the charts. The mean time of a delivery is the number of deliveries under way, divided by their rate
    (Little's law)."""
    summed = "ingress", "egress", "unsettled", "message_bytes"
    sums: Mapping[str, Any] = {key: sum(router.get(key, 0) for router in routers) for key in summed}
    mean_s = sums["unsettled"] / sums["ingress"] if sums["ingress"] else None
    return {"time": time_s, **sums, "mean_s": mean_s}
