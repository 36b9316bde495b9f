"""Made-up statuses of routers, for tests of the code that evaluates them."""

from typing import Any

import attrs

from router.entities.rates import RouterLook, Row
from router.http.gathering import MeshLook

STATUS: Row = {
    "mesh": "pair",
    "state": "ready",
    "waiting_for": [],
    "uptime_s": 5.0,
    "incarnation": 1,
    "rss_bytes": 40 << 20,
    "connections": 0,
    "records": {"placeholder": 0, "unconfirmed": 0, "in_doubt": 0, "accepted": 0, "settled": 0},
    "message_bytes": 0,
    "publishers": [],
    "subscribers": [],
    "queues": [],
    "waits": [],
    "attaches": {"waiting": 0, "for": [], "since_s": 0.0},
    "lapsed": [],
    "untold": [],
    "disk": {"log": "", "missing": 0, "store": ""},
}


def planned(name: str, neighbours: dict[str, int], *, there: bool = True) -> Row:
    return {
        "name": name,
        "standing": "member",
        "neighbours": neighbours,
        "inContact": there and name != "a",
        "isHere": name == "a",
    }


def publisher(name: str, **more: Any) -> Row:
    link = {"container": name, "link": "out", "address": "topic/x", "status": "attached"}
    return {**link, "unsettled": 0, "held_for": [], "held_s": 0.0, **more}


def neighbour(name: str, sent: int, received: int, *, up: bool = True) -> Row:
    of_link = {"name": name, "up": up, "cost": 1, "sinceSeconds": 3.0}
    return {
        **of_link,
        "messagesSent": 1,
        "messagesReceived": 1,
        "bytesSent": sent,
        "bytesReceived": received,
        "roundTripSeconds": 0.001,
    }


def answer(router: str, neighbours: list[Row], received: int = 0, delivered: int = 0, **status: Any) -> RouterLook:
    totals = {"deliveriesIngress": received, "deliveriesEgress": delivered, "acceptedDeliveries": 0}
    return RouterLook(0.0, {**STATUS, "router": router, **status}, totals, neighbours)


def look(time_s: float, **answers: RouterLook) -> MeshLook:
    """The look of router a at a pair of routers. A router without an answer is out of contact."""
    plan = [planned("a", {"b": 1}), planned("b", {"a": 1}, there="b" in answers)]
    told = {
        name: attrs.evolve(of, time=time_s, status=of.status | {"uptime_s": time_s}) for name, of in answers.items()
    }
    return MeshLook("pair", "a", time_s, plan, told, [])
