"""What is still missing before a mesh is up, and how its status reads."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from router.cli.base import PIPE_WIDTH
from router.mesh.config import AddressRule, Limits, LinkConfig, LogSettings, RouterConfig, Timing, Topology
from router.mesh.quantities import Address
from router.mesh.shown.sets import sets_in
from router.mesh.shown.status_view import MOST_ROWS, as_json, render, routers_table
from router.mesh.shown.waits import awaits, waits
from router.mesh.status import RouterView, unfinished
from router.text.printable import printable

LINE = Topology(
    mesh="line",
    routers={name: RouterConfig(name, Address("127.0.0.1", 0)) for name in "abc"},
    links=(LinkConfig("a", "b", 1), LinkConfig("b", "c", 3)),
    addresses=(AddressRule("topic/"),),
    timing=Timing(),
    limits=Limits(),
    log=LogSettings(),
    path=Path("line.yaml"),
)


def status(name: str, sees: str = "", **changes: Any) -> dict[str, Any]:
    routes = [
        {"router": other, "next_hop": "b" if name != "b" else other, "cost": 1, "contact": other in sees}
        for other in "abc"
        if other != name
    ]
    links = [
        {"neighbour": link.other(name), "up": link.other(name) in sees, "cost": link.cost, "since_s": 3.2}
        for link in LINE.links_of(name)
    ]
    document: dict[str, Any] = {
        "router": name,
        "mesh": "line",
        "incarnation": 1,
        "pid": 4711,
        "state": "ready",
        "waiting_for": [],
        "uptime_s": 200.0,
        "rss_bytes": 61 << 20,
        "connections": 12,
        "plan": {"digest": "1", "routers": dict.fromkeys("abc", "member")},
        "links": links,
        "routes": routes,
        "publishers": [],
        "subscribers": [],
        "orphans": [],
        "lapsed": [],
        "untold": [],
        "attaches": {"waiting": 0, "for": [], "since_s": 0.0},
        "records": {"placeholder": 0, "unconfirmed": 0, "in_doubt": 0, "accepted": 0, "settled": 0},
        "waits": [],
        "disk": {"log": "", "missing": 0, "store": ""},
    }
    return document | changes


FREE = {"held_for": [], "held_s": 0.0}
"""Of a publisher that has credit."""


def view(name: str, document: dict[str, Any] | None, pid: int | None = 4711) -> RouterView:
    return RouterView(name, pid, "127.0.0.1:5672", f"/run/{name}/router.log", document)


def views(*routers: RouterView) -> dict[str, RouterView]:
    return {router.name: router for router in routers}


def shown(routers: dict[str, RouterView], width: int = PIPE_WIDTH) -> str:
    out = Console(file=io.StringIO(), width=width)
    out.print(render("line", routers))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def row(text: str, start: str) -> str:
    """The line of `text` that starts with `start`, with its columns one space apart."""
    return next(" ".join(line.split()) for line in text.splitlines() if line.startswith(start))


def test_a_mesh_in_which_all_see_each_other_lacks_nothing() -> None:
    mesh = views(view("a", status("a", "bc")), view("b", status("b", "ac")), view("c", status("c", "ab")))
    assert unfinished(LINE, mesh, "abc") == {}


def test_what_each_router_lacks_is_told() -> None:
    mesh = views(
        view("a", None),
        view("b", status("b", "a")),
        view("c", status("c", "ab", state="booting")),
    )
    assert unfinished(LINE, mesh, "abc") == {
        "a": "does not answer",
        "b": "is not in contact with c",
        "c": "is booting",
    }


def test_a_router_need_not_see_what_a_stopped_one_cuts_off() -> None:
    mesh = views(view("a", status("a")), view("b", None, pid=None), view("c", status("c", state="booting")))
    assert unfinished(LINE, mesh, "ac") == {}


def test_a_link_that_only_one_end_calls_up_is_awaited() -> None:
    """Contact may have come by another way, or be known to one end first."""
    links = [{"neighbour": "a", "up": False, "cost": 1, "since_s": 0.1}]
    late = views(view("a", status("a", "bc")), view("b", status("b", "ac", links=links)), view("c", status("c", "ab")))
    assert unfinished(LINE, late, "abc") == {"b": "has no link to a, c"}
    assert unfinished(LINE, late, "a") == {"a": "has no link to b"}


def test_a_router_that_runs_alone_here_sees_those_of_other_hosts() -> None:
    text = shown(views(view("a", status("a", "bc"))))
    assert "2/2 c via b" in row(text, "a ")


def test_a_router_that_runs_alone_here_and_sees_no_other_host_is_shown_in_red() -> None:
    file = io.StringIO()
    out = Console(file=file, width=140, force_terminal=True, color_system="standard")
    out.print(routers_table(views(view("a", status("a")))))
    assert "\x1b[31m0/2" in file.getvalue()


def test_who_leaves_need_not_be_seen() -> None:
    leaving = {"digest": "1", "routers": {"a": "member", "b": "member", "c": "leaving"}}
    assert "1/1" in row(shown(views(view("a", status("a", "b", plan=leaving)))), "a ")


def test_routers_are_shown_with_what_they_see_and_by_which_way() -> None:
    text = shown(views(view("a", status("a", "bc")), view("b", status("b", "a")), view("c", None, pid=None)))
    assert text.startswith("mesh line: 2 of 3 routers ready, 0 publishers, 0 subscribers\n")
    assert row(text, "a ") == "a ready 127.0.0.1:5672 4711 3m 20s 61.0 MiB 12 b 2/2 c via b"
    assert row(text, "b ") == "b ready 127.0.0.1:5672 4711 3m 20s 61.0 MiB 12 a, c(3) down 1/2"
    assert row(text, "c ") == "c stopped 127.0.0.1:5672"


def test_clients_records_and_waits_are_shown() -> None:
    publisher = {"container": "x", "link": "p", "address": "topic/z", "status": "attached"}
    held = {"bytes": 8 << 20, "held_for": ["router b", "router c"], "held_s": 1.5}
    subscriber = {"container": "y", "link": "s", "address": "topic/z", "status": "suspended"}
    document = status(
        "a",
        "bc",
        state="booting",
        waiting_for=["c"],
        publishers=[publisher | {"unsettled": 3, "received": 100} | held],
        subscribers=[subscriber | {"queued": 4, "unsettled": 2, "credit": 10, "delivered": 100, "accepted": 98}],
        records={"placeholder": 0, "unconfirmed": 2, "in_doubt": 3, "accepted": 1, "settled": 0},
        attaches={"waiting": 2, "for": ["b", "c"], "since_s": 1.5},
        waits=[
            {"for": "subscriber y/s on topic/z", "publishers": ["x/p on topic/z"], "records": 3, "since_s": 1.2},
            {"for": "router c", "publishers": ["x/p on topic/z", "x/q on topic/z"], "records": 4, "since_s": 3},
        ],
        lapsed=[{"container": "z", "link": "s", "address": "topic/z", "router": "c", "since_s": 4.5}],
    )
    text = shown(views(view("a", document)))
    assert "2 unconfirmed, 3 in doubt, 1 accepted" in text
    assert "a has 2 attaches waiting for b, c" in text
    unheard = status("a", attaches={"waiting": 1, "for": [], "since_s": 6.0})
    assert "a has 1 attach waiting for a router that knows the client's last attach" in shown(views(view("a", unheard)))
    assert row(text, "x/p") == "x/p topic/z a attached 100 3"
    assert row(text, "y/s") == "y/s topic/z a suspended 100 98 2 4 10"
    assert "a accepts no messages until it has heard from c" in text
    assert (
        "a waits for subscriber y/s on topic/z, which is away: 3 deliveries of x/p on topic/z, for 1.2s or more" in text
    )
    assert "a waits for router c: 4 deliveries of 2 publishers, for 3.0s or more" in text
    assert "a gives no credit to x/p on topic/z, which has 8.0 MiB unsettled, and waits for router b and 1 more" in text
    assert "a no longer waits for z/s on topic/z, which has been out of reach for 4.5s" in text


@pytest.mark.parametrize("width", [45, 60, 80, 100, 120])
def test_a_narrow_terminal_shows_all_that_a_wide_one_does_or_says_what_it_leaves_out(width: int) -> None:
    publisher = {"container": "the-first-publisher", "link": "publish", "address": "topic/z", "status": "attached"}
    document = status(
        "a",
        "bc",
        publishers=[publisher | {"unsettled": 3, "received": 100} | FREE],
        records={"placeholder": 0, "unconfirmed": 0, "in_doubt": 3, "accepted": 1, "settled": 2},
    )
    mesh = views(view("a", document), view("b", status("b", "a")), view("c", None, pid=None))
    narrow, wide = shown(mesh, width), shown(mesh)
    assert max(map(len, narrow.splitlines())) <= width
    assert "…" not in narrow
    for heading in ("Router", "State", "Pid", "Memory", "Connections", "Sees", "Records", "Publisher", "Unsettled"):
        assert heading in narrow
    if "no room for " not in narrow:
        assert not {*wide.split()} - {*narrow.split()} - {word for word in wide.split() if set(word) == {"─"}}


def test_in_a_pipe_no_line_is_too_long() -> None:
    publisher = {"container": "p" * 300, "link": "publish", "address": "topic/z", "status": "attached"}
    document = status("a", publishers=[publisher | {"unsettled": 3, "received": 100} | FREE])
    text = shown(views(view("a", document)), PIPE_WIDTH)
    assert row(text, f"{'p' * 300}/publish") == f"{'p' * 300}/publish topic/z a attached 100 3"
    assert max(map(len, text.splitlines())) < 400


def test_a_slow_subscriber_is_one_wait_which_names_it_and_no_router() -> None:
    x = "x/p on topic/z"
    held = {"bytes": 8 << 20, "held_for": ["router c"], "held_s": 1.5}
    publisher = {"container": "x", "link": "p", "address": "topic/z", "status": "attached"} | held
    for_c = {"for": "router c", "publishers": [x], "records": 4, "since_s": 3.0}
    for_s = {"for": "subscriber y/s on topic/z", "publishers": [x], "records": 3, "since_s": 2.0}
    a = view("a", status("a", waits=[for_c], publishers=[publisher]))
    assert list(waits([a, view("c", status("c", waits=[for_s]))])) == [
        "a gives no credit to x/p on topic/z, which has 8.0 MiB unsettled, and waits for subscriber y/s on topic/z",
        "c waits for subscriber y/s on topic/z: 3 deliveries of x/p on topic/z, for 2.0s or more",
    ]
    for_c["publishers"] = [x, "x/q on topic/z"]
    said = list(waits([a, view("c", status("c", waits=[for_s]))]))
    assert "a waits for router c: 4 deliveries of x/q on topic/z, for 3.0s or more" in said, "c does not say for whom"
    alone = list(waits([a]))
    assert "a waits for router c: 4 deliveries of 2 publishers, for 3.0s or more" in alone
    assert "a gives no credit to x/p on topic/z, which has 8.0 MiB unsettled, and waits for router c" in alone


def test_who_is_away_is_said_to_be() -> None:
    gone = {"container": "y", "link": "s", "address": "topic/z", "status": "suspended", "timeout_s": 60}
    for_s = {"for": "subscriber y/s on topic/z", "publishers": ["x/p on topic/z"], "records": 3, "since_s": 2.0}
    for_o = {"for": "orphan o/s on topic/z", "publishers": ["x/p on topic/z"], "records": 3, "since_s": 2.0}
    orphan = {"role": "subscriber", "container": "o", "link": "s", "address": "topic/z", "timeout_s": 5}
    told = list(waits([view("a", status("a", waits=[for_s, for_o], subscribers=[gone], orphans=[orphan]))]))
    assert [line.partition(": ")[0] for line in told] == [
        "a waits for subscriber y/s on topic/z, which is away, until its timeout of 1m is over",
        "a waits for subscriber o/s on topic/z, which is away, until its timeout of 5.0s is over",
    ]


def test_any_subscriber_with_credit_is_awaited_and_a_router_to_receive() -> None:
    held = {"publishers": ["p/publish on work/q"], "since_s": 9.0}
    for_any = {"for": "any subscriber of work/q with credit", "records": 1} | held
    for_b = {"for": "router b, to receive messages that are under way", "records": 2} | held
    assert list(waits([view("a", status("a", waits=[for_any, for_b])), view("b", status("b"))])) == [
        "a waits for any subscriber of work/q with credit: 1 delivery of p/publish on work/q, for 9.0s or more",
        "a waits for router b, to receive messages that are under way: 2 deliveries of p/publish on work/q, for 9.0s "
        "or more",
    ]


def test_whom_a_mesh_under_load_awaits_for_a_moment_is_not_named() -> None:
    waits = [{"for": "router c", "publishers": ["x/p on topic/z"], "records": 4, "since_s": 0.9}]
    mesh = views(view("a", status("a", waits=waits, attaches={"waiting": 1, "for": ["b"], "since_s": 0.9})))
    text = shown(mesh)
    assert "wait" not in text
    assert awaits(mesh.values()), "a second look may find that it lasts"
    assert not awaits(views(view("a", status("a")), view("b", None)).values())


def test_a_disk_that_cannot_be_written_is_shown() -> None:
    full = {"log": "/x/1.oml: No space left on device", "missing": 7, "store": ""}
    again = {"log": "", "missing": 3, "store": "/x/state.db: full"}
    text = shown(views(view("a", status("a", disk=full)), view("b", status("b", disk=again)), view("c", status("c"))))
    assert "a cannot write its delivery log: /x/1.oml: No space left on device; entries that are missing: 7" in text
    assert "b writes its delivery log again; entries that are missing: 3" in text
    assert text.count("delivery log") == 2
    assert "b refuses new durable links: /x/state.db: full" in text


def test_who_has_ended_untold_is_shown_once_for_all_routers_that_say_so() -> None:
    ended = [
        {
            "container": "z",
            "link": "s",
            "address": "topic/z",
            "ending": "router a accepted messages without this subscriber",
        }
    ]
    text = shown(views(view("a", status("a", untold=ended)), view("b", status("b", untold=ended))))
    assert (
        text.count(
            "z/s on topic/z was ended, and its client does not know yet: "
            "router a accepted messages without this subscriber"
        )
        == 1
    )


def test_a_thousand_subscribers_do_not_flood_the_terminal() -> None:
    counters = {"queued": 0, "unsettled": 0, "credit": 1, "delivered": 0, "accepted": 0}
    many = [
        {"container": f"c{number}", "link": "s", "address": "topic/z", "status": "attached"} | counters
        for number in range(1000)
    ]
    text = shown(views(view("a", status("a", subscribers=many))))
    assert "1000 subscribers" in text
    assert f"and {1000 - MOST_ROWS} more subscribers (--json lists all)" in text
    assert len(text.splitlines()) < MOST_ROWS + 15


@pytest.mark.parametrize("hostile", ["[red]x[/red]", "[/]"])
def test_names_that_clients_choose_are_shown_as_they_are(hostile: str) -> None:
    publisher = {"container": hostile, "link": "p", "address": hostile, "status": "attached"}
    text = shown(views(view("a", status("a", publishers=[publisher | {"unsettled": 0, "received": 0} | FREE]))))
    assert f"{hostile}/p" in text


def test_names_that_clients_choose_do_nothing_to_the_terminal() -> None:
    hostile = "\x1b[m\r\n\u202e"
    client = {"container": hostile, "link": hostile, "address": hostile, "status": "attached"}
    counters: dict[str, Any] = {"queued": 0, "unsettled": 0, "credit": 1, "delivered": 0, "accepted": 0, "received": 0}
    counters |= {"bytes": 0, "held_for": [hostile], "held_s": 1.5}
    waits = [{"for": f"subscriber {hostile}", "publishers": [hostile], "records": 1, "since_s": 1.2}]
    clients, lapsed = [client | counters], [client | {"router": "c", "since_s": 4.5}]
    document = status("a", publishers=clients, subscribers=clients, lapsed=lapsed, waits=waits)
    text = shown(views(view("a", document)))
    escaped = r"\x1b[m\r\n\u202e"
    assert text.count(escaped) == 15
    assert not {"\x1b", "\r", "\u202e"} & set(text)


def test_the_json_document_has_every_router_running_or_not(tmp_path: Path) -> None:
    mesh = views(view("a", status("a")), view("b", None, pid=None))
    document = as_json("line", tmp_path, mesh)
    assert document["mesh"] == "line"
    assert document["run_dir"] == str(tmp_path)
    assert document["routers"]["a"]["status"]["router"] == "a"
    assert document["routers"]["b"] == {
        "running": False,
        "pid": None,
        "amqp": "127.0.0.1:5672",
        "http": "",
        "mqtt": "",
        "more": {},
        "log": "/run/b/router.log",
        "status": None,
    }


def replica_set(name: str, role: str, leader: str | None, **more: Any) -> dict[str, Any]:
    members = {"ring": [*"abc"], "voters": [*"abc"], "may_stop": [*"abc"], "learners": []}
    counts = {"term": 2, "commit": 7, "behind": {}, "copied": {}, "queues": 4, "unstored_bytes": 0, "why_aside": ""}
    return {"name": name, "prefix": "", "life": "66a2-a", "leader": leader, "role": role, **members, **counts, **more}


def test_replica_sets_are_shown_where_there_are_any() -> None:
    whole = views(view("a", status("a", "bc")), view("b", status("b", "ac")), view("c", status("c", "ab")))
    assert "Leader" not in shown(whole)
    leads = replica_set("eu", "leader", "a", prefix="queue/eu/", behind={"b": 12, "c": 0}, may_stop=["c"])
    follows = replica_set("eu", "follower", "a", commit=5, why_aside="a disk was replaced")
    lost = replica_set("q0", "candidate", None)
    text = shown(views(view("a", status("a", "bc", sets=[leads])), view("b", status("b", "ac", sets=[follows, lost]))))
    assert row(text, "Set") == "Set Leader Voters Learners Prefix Queues Term Committed Unstored Behind Needs"
    assert row(text, "eu") == "eu a a, b, c queue/eu/ 4 2 7 0 B b 12 a, b"
    assert row(text, "q0") == "q0 none a, b, c 4 2 7 0 B"
    assert "do not stop router b: no majority is left of replica set eu" in text
    assert "stop no router: no router leads replica set q0" in text
    assert "b set its store of replica set eu aside: a disk was replaced" in text


def test_a_router_whose_replicas_wait_for_room_says_so() -> None:
    disk = {"log": "", "missing": 0, "store": "", "queues": "queues.db: no room"}
    assert "a cannot write its replica sets: queues.db: no room" in shown(views(view("a", status("a", disk=disk))))


def test_it_says_which_routers_may_be_stopped() -> None:
    whole = replica_set("eu", "leader", "a")
    text = shown(views(*(view(name, status(name, sets=[whole] if name == "a" else [])) for name in "abc")))
    assert "you may stop any one of routers a, b, c now: each replica set keeps its majority" in text
    needy = views(view("a", status("a", sets=[replica_set("eu", "leader", "a", may_stop=["c"])])))
    assert as_json("line", None, needy)["needed"] == {"a": ["eu"], "b": ["eu"]}


def queue(name: str, messages: int, **more: Any) -> dict[str, Any]:
    counts = {"messages": messages, "bytes": 2048 * messages, "reserved": 1, "consumers": 2, "oldest_s": 65.0}
    return {"name": name, "set": "eu", **counts, **more}


def test_queues_are_shown_once_the_deepest_first() -> None:
    leads = replica_set("eu", "leader", "a", queues=30)
    former = replica_set("eu", "leader", "b", term=1)
    led = [queue(f"queue/{number:02}", number) for number in range(28)]
    ours = view("a", status("a", "bc", sets=[leads], queues=led))
    theirs = view("b", status("b", "ac", sets=[former], queues=[queue("queue/former", 99)]))
    text = shown(views(ours, theirs))
    assert row(text, "Queue") == "Queue Set Leader Messages Bytes Reserved Oldest Consumers"
    assert row(text, "queue/27") == "queue/27 eu a 27 54.0 KiB 1 1m 5s 2"
    assert text.index("queue/27") < text.index("queue/26") < text.index("queue/03")
    assert "queue/02" not in text and "and 5 more queues (oncemesh queue list has all)" in text
    assert "queue/former" not in text, "b does not know yet that it leads no more"
    assert row(shown(views(view("a", status("a", sets=[leads], queues=led[:1])))), "queue/00").endswith(" 0 0 B 1 2")


@pytest.mark.parametrize("hostile", ["[red]x[/red]", "[/]", "\x1b[m\r\n\u202e"])
def test_the_name_of_a_queue_does_nothing_to_the_terminal(hostile: str) -> None:
    leads = replica_set("eu", "leader", "a")
    for width in (PIPE_WIDTH, 80, 40):
        text = shown(views(view("a", status("a", sets=[leads], queues=[queue(hostile * 9, 1)]))), width)
        assert not {"\x1b", "\r", "\u202e"} & set(text) and max(map(len, text.splitlines())) <= width
        assert "".join(printable(hostile * 9).split()) in "".join(text.split()) or width < PIPE_WIDTH


@pytest.mark.parametrize(
    ("rows", "by"),
    [
        ({"a": {"role": "leader", "term": 3}, "b": {"role": "follower", "term": 4}}, "b"),
        ({"a": {"role": "follower", "commit": 9}, "b": {"role": "leader", "commit": 8}}, "b"),
        ({"a": {"role": "follower", "commit": 9}, "b": {"role": "follower", "commit": 8}}, "a"),
        (
            {"a": {"role": "leader", "life": "ff-a", "term": 9}, "b": {"role": "leader", "life": "100-a", "term": 1}},
            "b",
        ),
        ({"a": {"role": "proxy", "life": None}, "b": {"role": "follower"}}, "b"),
    ],
    ids=["term", "leader", "commit", "life", "begun"],
)
def test_of_routers_that_differ_one_knows_best(rows: dict[str, dict[str, Any]], by: str) -> None:
    [one] = sets_in((router, replica_set("q0", **{"leader": "a", "role": "", **more})) for router, more in rows.items())
    assert one.by == by
