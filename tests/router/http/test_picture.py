"""The picture of a mesh: what is made of what its routers say of themselves."""

from typing import Any

import pytest

from router.http.picture import MOST_CLIENTS, MOST_QUEUES, Painter
from tests.router.http.looks import answer, look, neighbour, publisher


def test_totals_become_rates_from_look_to_look() -> None:
    painter = Painter()
    one = answer("a", [neighbour("b", 1000, 500)], 100, 10), answer("b", [neighbour("a", 500, 1000)])
    first = painter.picture(look(10.0, a=one[0], b=one[1]))
    assert first["routers"][0]["ingress"] == first["links"][0]["a_to_b"] == 0.0
    two = answer("a", [neighbour("b", 3000, 600)], 150, 30), answer("b", [neighbour("a", 600, 3000)])
    second = painter.picture(look(12.0, a=two[0], b=two[1]))
    assert (second["routers"][0]["ingress"], second["routers"][0]["egress"]) == (25.0, 10.0)
    [link] = second["links"]
    assert (link["a"], link["b"], link["cost"], link["up"]) == ("a", "b", 1, True)
    assert (link["a_to_b"], link["b_to_a"], link["round_trip_s"]) == (1000.0, 50.0, 0.001)


def test_of_a_total_that_begins_anew_all_counts() -> None:
    painter = Painter()
    for time_s, total, expected in ((1.0, 1000, 0.0), (2.0, 5, 5.0), (3.0, 15, 10.0)):
        picture = painter.picture(look(time_s, a=answer("a", [], total)))
        assert picture["routers"][0]["ingress"] == expected


def test_who_is_out_of_contact_has_been_since_it_was_first_seen_to_be() -> None:
    painter = Painter()
    both = answer("a", [neighbour("b", 1, 1)]), answer("b", [neighbour("a", 1, 1)])
    assert painter.picture(look(1.0, a=both[0], b=both[1]))["routers"][1]["state"] == "ready"
    alone = answer("a", [neighbour("b", 0, 0, up=False)])
    for time_s, away_s in ((5.0, 0.0), (7.5, 2.5)):
        picture = painter.picture(look(time_s, a=alone))
        assert picture["routers"][1] == {
            "name": "b", "standing": "member", "state": "out of contact", "away_s": away_s
        }  # fmt: skip
        assert picture["links"][0]["up"] is False
    assert painter.picture(look(8.0, a=both[0], b=both[1]))["routers"][1]["state"] == "ready"
    assert painter.picture(look(9.0, a=alone))["routers"][1]["away_s"] == 0.0


def test_a_link_is_as_its_one_end_sees_it_where_the_other_does_not_answer() -> None:
    painter = Painter()
    for time_s, received in ((1.0, 0), (2.0, 700)):
        picture = painter.picture(look(time_s, a=answer("a", [neighbour("b", 0, received)])))
    assert picture["links"][0]["b_to_a"] == 700.0


def test_waits_that_last_are_told_once_the_longest_first() -> None:
    waits = [
        {"for": "subscriber s", "publishers": ["p"], "records": 3, "since_s": 2.0},
        {"for": "router b", "publishers": ["p", "q"], "records": 4, "since_s": 9.0},
        {"for": "router c", "publishers": ["p"], "records": 1, "since_s": 0.9},
    ]
    held = publisher("w", held_for=["router b", "router d"], held_s=5.0, unsettled=7)
    attaches = {"waiting": 2, "for": ["b"], "since_s": 1.5}
    told = Painter().picture(look(1.0, a=answer("a", [], waits=waits, publishers=[held], attaches=attaches)))["waits"]
    assert [(wait["who"], wait["for"], wait["records"], wait["since_s"]) for wait in told] == [
        ("2 publishers", "router b", 4, 9.0),
        ("w/out on topic/x", "router d", 7, 5.0),
        ("p", "subscriber s", 3, 2.0),
        ("2 attaches", "router b", 0, 1.5),
    ]


def test_what_somebody_has_to_look_after_is_told() -> None:
    gone = {"container": "s", "link": "in", "address": "topic/x", "ending": "by b"}
    status: dict[str, Any] = {
        "waiting_for": ["b"],
        "lapsed": [gone],
        "untold": [gone],
        "disk": {"log": "full", "missing": 1, "store": "full, too"},
    }
    told = Painter().picture(look(1.0, a=answer("a", [], **status)))["told"]
    assert [one["text"] for one in told] == [
        "accepts no messages until it has heard from b",
        "no longer waits for s/in on topic/x",
        "s/in on topic/x was ended, and its client does not know yet: by b",
        "cannot write its delivery log: full",
        "refuses new durable links: full, too",
    ]


def test_what_is_listed_is_bounded_and_what_is_left_out_counted() -> None:
    many = [publisher(f"p{number}", unsettled=2) for number in range(MOST_CLIENTS + 5)]
    picture = Painter().picture(look(1.0, a=answer("a", [], publishers=many)))
    assert len(picture["clients"]) == MOST_CLIENTS
    assert picture["routers"][0]["publishers"] == MOST_CLIENTS + 5
    assert picture["point"]["unsettled"] == 2 * (MOST_CLIENTS + 5)


def test_the_mean_time_is_what_is_under_way_by_its_rate() -> None:
    painter = Painter()
    means = []
    for time_s, total in ((1.0, 0), (2.0, 400), (3.0, 400)):
        held = [publisher("p", unsettled=20)]
        means.append(painter.picture(look(time_s, a=answer("a", [], total, publishers=held)))["point"]["mean_s"])
    assert means == [None, pytest.approx(0.05), None]


def replica_set(name: str, role: str, **more: Any) -> dict[str, Any]:
    members = {"voters": ["a", "b", "c"], "may_stop": ["a", "b", "c"], "learners": [], "async": []}
    told = {
        "name": name,
        "prefix": "",
        "life": "66a2-a",
        "term": 2,
        "leader": "a",
        "role": role,
        "commit": 7,
        "behind": {},
        "copied": {},
    }
    return {**told, **members, "queues": 1, "unstored_bytes": 0, "why_aside": "", **more}


def test_a_replica_set_is_told_once_as_the_router_knows_it_that_knows_best() -> None:
    leads = replica_set("q0", "leader", behind={"b": 3, "c": 0}, may_stop=["c"])
    follows = replica_set("q0", "follower", term=1, leader="b", why_aside="its disk is not to be trusted")
    lost = replica_set("q1", "candidate", leader=None)
    picture = Painter().picture(look(1.0, a=answer("a", [], sets=[leads]), b=answer("b", [], sets=[follows, lost])))
    first, second = picture["sets"]
    assert (first["leader"], first["behind"], first["needed"]) == ("a", {"b": 3, "c": 0}, ["a", "b"])
    assert (second["name"], second["leader"], second["needed"]) == ("q1", None, [])
    assert [one["text"] for one in picture["told"]] == [
        "set its store of replica set q0 aside: its disk is not to be trusted"
    ]


def queue(name: str, messages: int, enqueued: int = 0, dequeued: int = 0, **more: Any) -> dict[str, Any]:
    counts = {"bytes": 2 * messages, "reserved": 0, "consumers": 1, "oldest_s": 3.0, "given_back": 0}
    counts |= {"purged": 0, "expired": 0, "outbox": 0, "dead": 0, "paused": 0, "scheduled": 0}
    return {
        "name": name,
        "set": "q0",
        "messages": messages,
        "enqueued": enqueued,
        "dequeued": dequeued,
        **counts,
        **more,
    }


def test_the_deepest_queues_are_told_with_their_leaders_and_rates() -> None:
    painter = Painter()
    for time_s, passed in ((1.0, 100), (3.0, 140)):
        led = [queue("queue/a", 2, passed, passed - 10), queue("queue/b", 7, 5, 0)]
        leads, follows = replica_set("q0", "leader", queues=3), replica_set("q0", "follower")
        both = answer("a", [], sets=[leads], queues=led), answer("b", [], sets=[follows])
        picture = painter.picture(look(time_s, a=both[0], b=both[1]))
    first, second = picture["queues"]
    assert (first["name"], first["leader"], first["set"], first["messages"], first["in"]) == (
        "queue/b",
        "a",
        "q0",
        7,
        0,
    )
    assert (second["in"], second["out"], second["oldest_s"], second["consumers"]) == (20.0, 20.0, 3.0, 1)
    assert picture["more_queues"] == 1


def test_a_queue_that_comes_among_the_deepest_has_no_rate_yet() -> None:
    painter = Painter()
    for time_s, led in ((1.0, []), (2.0, [queue("queue/a", 9, 5000, 10)])):
        picture = painter.picture(look(time_s, a=answer("a", [], sets=[replica_set("q0", "leader")], queues=led)))
    assert (picture["queues"][0]["in"], picture["queues"][0]["out"]) == (0.0, 0.0)


def test_of_a_leader_that_leads_anew_all_counts() -> None:
    painter = Painter()
    for time_s, enqueued in ((1.0, 5000), (2.0, 30)):
        led = [queue("queue/a", 9, enqueued)]
        picture = painter.picture(look(time_s, a=answer("a", [], sets=[replica_set("q0", "leader")], queues=led)))
    assert picture["queues"][0]["in"] == 30.0


def test_queues_are_bounded_and_who_was_given_up_tells_of_none() -> None:
    many = [queue(f"queue/{number}", number) for number in range(MOST_QUEUES + 5)]
    leads, former = replica_set("q0", "leader", term=3, queues=200), replica_set("q0", "leader", leader="b")
    both = answer("a", [], sets=[leads], queues=many), answer("b", [], sets=[former], queues=[queue("queue/old", 999)])
    picture = Painter().picture(look(1.0, a=both[0], b=both[1]))
    assert len(picture["queues"]) == MOST_QUEUES and picture["queues"][0]["messages"] == MOST_QUEUES + 4
    assert picture["more_queues"] == 100
