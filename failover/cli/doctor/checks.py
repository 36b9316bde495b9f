"""The checks of doctor. A check is a function that yields each fault with its remedy, and nothing if it finds no fault.

`CHECKS` lists all checks. A check applies if the symptoms have the facts that it judges.
"""

import errno
import os
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final

from attrs import frozen

from failover.cli.doctor.symptoms import Symptoms
from router.entities.replicas import LEADER
from router.mesh.planned import sets_of
from router.mesh.quantities import format_duration, format_size
from router.mesh.reading import joined_with_or
from router.mesh.shown.sets import ShownSet, in_words
from router.mesh.shown.status_view import aside, disks
from router.mesh.shown.waits import waits
from router.mesh.status import contacts_of, unseen_by
from router.mesh.topology import reachable

DESCRIPTORS: Final = 4096
LEAST_DESCRIPTORS: Final = 256
MEMORY_EACH: Final = 128 << 20
DISK_SOON: Final = 2 << 30
DISK_LEAST: Final = 200 << 20
DAY_S: Final = 86_400
EXPIRES_SOON_S: Final = 30 * DAY_S
CLOCK_S: Final = 1.0
"""The largest difference in seconds between two clocks that doctor accepts. A larger one makes the times in logs and in
the audit wrong."""
CLOCK_MOST_S: Final = 3600.0
"""The seconds by which a clock may be ahead of a router's clock. A router ignores clocks beyond that (protocol 2)."""
LONG_S: Final = 600.0
"""The seconds after which doctor reports a learner that has not become a voter, or a voter that has stayed away."""
NEARLY_FULL: Final = 0.8
"""A set is nearly full if it has used this share of its limit."""
TWO: Final = 2
"""A set with this number of replicas needs all of them, by design. The check of sets does not warn of this."""


class Level(StrEnum):
    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@frozen
class Diagnosis:
    level: Level
    check: str
    what: str
    todo: str = ""


@frozen
class Check:
    name: str
    asks: str
    """A text that says which faults the check looks for. Doctor prints it if the check finds no fault."""
    applies: Callable[[Symptoms], object]
    find: Callable[[Symptoms], Iterator[tuple[Level, str, str]]]


Found = Iterator[tuple[Level, str, str]]
"""Each finding of a check: its level, the fault, and the remedy."""


def always(seen: Symptoms) -> bool:
    return True


def descriptors(seen: Symptoms) -> Found:
    if (have := seen.host.descriptors) < DESCRIPTORS:
        level = Level.FAIL if have < LEAST_DESCRIPTORS else Level.WARN
        what = f"a process may open only {have} descriptors, and each client of a router needs one"
        yield level, what, f"set ulimit -n to {DESCRIPTORS} or more, or LimitNOFILE= in a systemd service"


def memory(seen: Symptoms) -> Found:
    need = MEMORY_EACH * max(1, len(seen.here))
    if seen.host.memory_bytes < need:
        what = f"{format_size(seen.host.memory_bytes)} of memory are free; under load the routers here need up to"
        yield Level.WARN, f"{what} {format_size(need)}", "stop other programs, or move routers to other hosts"


def time_is_kept(seen: Symptoms) -> Found:
    if seen.host.keeps_time is False:
        todo = "run chrony, ntpd or systemd-timesyncd"
        yield Level.WARN, "no time service runs on this host: times in logs and in the audit drift", todo


def audit(seen: Symptoms) -> Found:
    if seen.host.lacks_audit:
        lacks = ", ".join(seen.host.lacks_audit)
        todo = "run pip install '.[audit]' in a clone if you need the audit"
        yield Level.WARN, f"the audit cannot run here: {lacks} is missing", todo


def loops(seen: Symptoms) -> Found:
    if not seen.host.is_compiled:
        what = "routers here are slow: their inner loops are not compiled"
        yield Level.WARN, what, "install again with a C compiler and without ONCEMESH_INTERPRETED"


def topology(seen: Symptoms) -> Found:
    for problem in seen.unreadable:
        yield Level.FAIL, problem, "correct the file; the message says what is expected"


def alternatives(seen: Symptoms) -> Found:
    """Find routers whose loss would cut other routers off from each other."""
    assert seen.topology is not None
    names = list(seen.topology.routers)
    if len(names) == 1:
        yield (
            Level.WARN,
            f"{names[0]} is the only router: no other router takes over when it dies",
            "use two routers, or better three",
        )
    for lost in names if len(names) > 2 else ():
        links = [(link.a, link.b) for link in seen.topology.links if lost not in (link.a, link.b)]
        first, *others = (name for name in names if name != lost)
        if cut := [name for name in others if name not in reachable(first, links)]:
            what = f"if router {lost} dies, {first} cannot reach {', '.join(cut)}"
            yield Level.WARN, what, "add a link between the two sides"


def voters(seen: Symptoms) -> Found:
    assert seen.topology is not None
    voters = {plan.name: len(plan.voters) for plan in sets_of(seen.topology).plans.values()}
    voters |= {one.name: len(one.ring) for one in seen.sets if one.has_begun and one.ring}
    two = [name for name, count in voters.items() if count == TWO]
    if two:
        what = "these survive no failure, and are less available than with one voter: both have to run"
        yield (
            Level.WARN,
            f"replica sets with two voters: {', '.join(two)}; {what}",
            f"use one replica, or better three: oncemesh queue replicas {two[0]} --add ROUTER",
        )


def openings(seen: Symptoms) -> Found:
    assert seen.topology is not None
    for opening in seen.topology.openings(*seen.topology.routers):
        yield Level.WARN, opening, "set up users or certificates (docs/security.md)"


def listeners(seen: Symptoms) -> Found:
    for path in dict.fromkeys(seen.held.values()):
        which = ", ".join(listener for listener, place in seen.held.items() if place == path)
        yield (
            Level.WARN,
            f"this mesh runs already, with the run directory {path}; its routers listen there: {which}",
            "omit the file to check the running mesh",
        )
    for listener, why in seen.taken.items():
        yield (
            Level.FAIL,
            f"{listener} cannot listen on {why}",
            "end the process that uses the address, or choose another address; use --router NAME to check only the"
            " routers of this host, or omit the file to check the running mesh",
        )


def security_files(seen: Symptoms) -> Found:
    if os.strerror(errno.EACCES) in seen.security:
        yield Level.FAIL, seen.security, "run doctor as the user of the routers, who must be able to read these files"
    elif seen.security:
        made = "oncemesh certs init creates certificates for trials, oncemesh user add creates a file of users"
        yield Level.FAIL, seen.security, f"docs/security.md describes each file; {made}"


def certificates(seen: Symptoms) -> Found:
    todo = "replace the certificate, then send SIGHUP to the router"
    for router, validity in seen.certificates.items():
        left = validity.ends - seen.now
        if left <= 0:
            yield Level.FAIL, f"{validity.path} of router {router} expired {_days(-left)} ago", todo
        elif validity.begins > seen.now:
            yield (
                Level.FAIL,
                f"{validity.path} of router {router} becomes valid only in {_days(validity.begins - seen.now)}",
                todo,
            )
        elif left < EXPIRES_SOON_S:
            yield Level.WARN, f"{validity.path} of router {router} expires in {_days(left)}", todo


def _days(seconds: float) -> str:
    return f"{seconds / DAY_S:.0f} days" if seconds >= 2 * DAY_S else format_duration(seconds)


def disk(seen: Symptoms) -> Found:
    assert seen.disk is not None
    if seen.disk.why_not:
        yield (
            Level.FAIL,
            f"the run directory cannot be written: {seen.disk.why_not}",
            "give the user of the routers permission to write it",
        )
    elif seen.disk.free_bytes < DISK_SOON:
        level = Level.FAIL if seen.disk.free_bytes < DISK_LEAST else Level.WARN
        what = f"{format_size(seen.disk.free_bytes)} are free on the disk of the run directory"
        yield level, what, "free some space, or keep fewer delivery logs: `log: {keep, size}` in the topology"


def rooms(seen: Symptoms) -> Found:
    """Find sets that are nearly full, and hosts of other routers whose disks are nearly full. Another check judges the
    disk of this host."""
    for router, status in seen.elsewhere.items():
        free = status.get("disk", {}).get("free_bytes")
        if free is not None and free < DISK_SOON:
            level = Level.FAIL if free < DISK_LEAST else Level.WARN
            yield level, f"{format_size(free)} are free on the disk of router {router}", "free some space there"
    for one in seen.sets:
        size, limit = one.best.get("message_bytes"), one.best.get("limit_bytes")
        if size is None or not limit or size < NEARLY_FULL * limit:
            continue
        is_full = size >= limit
        state = "is full, so its publishers wait" if is_full else "is nearly full, and then its publishers wait"
        what = f"replica set {one.name} {state}: it has {format_size(size)} of {format_size(limit)}"
        todo = "start consumers, or empty a queue with oncemesh queue purge; oncemesh queue list shows the deepest"
        yield Level.FAIL if is_full else Level.WARN, what, todo


def stores(seen: Symptoms) -> Found:
    for router, fault in seen.stores.items():
        if fault.is_refused:
            todo = "move the files queues.db* of this router away: it gets its replicas from the other routers then"
            yield Level.FAIL, f"router {router} cannot start with its replica sets: {fault.why}", todo
        else:
            todo = "start the other routers of its replica sets, too: it gets its replicas from them"
            yield Level.WARN, f"router {router} loses replicas when it starts: {fault.why}", todo


def crashes(seen: Symptoms) -> Found:
    for router, line in seen.ended.items():
        yield (
            Level.WARN,
            f"router {router} crashed: {line}",
            "please report this bug with its router.log",
        )


def running(seen: Symptoms) -> Found:
    where = "" if any(view.running for view in seen.views.values()) else ", with the --run-dir of this mesh"
    for name, view in seen.views.items():
        if not view.running:
            yield Level.WARN, f"router {name} does not run", f"use oncemesh start {name}{where}"
        elif view.status is None:
            yield (
                Level.FAIL,
                f"router {name} runs at {view.amqp} but does not answer",
                "see its router.log, or use oncemesh stop",
            )
        elif view.status["state"] != "ready":
            yield Level.WARN, f"router {name} is {view.status['state']}", "wait, or start the routers that it waits for"


def contacts(seen: Symptoms) -> Found:
    up = {name for name, view in seen.views.items() if view.status is not None}
    for name in sorted(up):
        if unseen := sorted(up - {name} - contacts_of(seen.views[name])):
            what = f"router {name} is not in contact with {', '.join(unseen)}, although these run"
            yield Level.FAIL, what, "check the links, the `inter` addresses and firewalls between them"
        if unseen := sorted(unseen_by(seen.views[name]) - {*seen.views}):
            what = f"router {name} is not in contact with {', '.join(unseen)} on other hosts"
            yield Level.WARN, what, "check that they run, and firewalls between them; its router.log has the reason"
    digests = {view.status["plan"]["digest"] for view in seen.views.values() if view.status is not None}
    if len(digests) > 1:
        yield (
            Level.WARN,
            "the routers have different plans of the mesh",
            "wait; if it stays so, use oncemesh apply again",
        )


def clocks(seen: Symptoms) -> Found:
    for name, clock in sorted(seen.clocks.items()):
        if abs(clock.ahead_s) > CLOCK_S:
            level = Level.FAIL if abs(clock.ahead_s) > CLOCK_MOST_S else Level.WARN
            which = "ahead of" if clock.ahead_s > 0 else "behind"
            what = f"the clock of router {name} is {format_duration(abs(clock.ahead_s))} {which} the clock of this host"
            yield level, what, "synchronise both hosts by NTP"
        if abs(clock.moved_s) > CLOCK_S:
            way = "on" if clock.moved_s > 0 else "back"
            what = f"the clock of router {name} was set {way} by {format_duration(abs(clock.moved_s))} since it started"
            yield (
                Level.WARN,
                what,
                "let NTP set the clock before routers start, and afterwards only slew it",
            )
        if clock.refused:
            what = f"router {name} has rejected {clock.refused} times that were more than an hour ahead of its clock"
            yield Level.FAIL, what, "synchronise all hosts by NTP"
    fastest = max(clock.ahead_s for clock in seen.clocks.values())
    beyond_s = max(clock.ahead_s + clock.behind_s for clock in seen.clocks.values()) - fastest
    if beyond_s > CLOCK_S:
        what = f"a clock in the mesh is, or was, {format_duration(beyond_s)} ahead of all clocks here"
        yield Level.WARN, what, "synchronise all hosts by NTP"


def waiting(seen: Symptoms) -> Found:
    for wait in waits(seen.views.values()):
        yield (
            Level.WARN,
            wait,
            "start the client again, or any subscriber of the address, or wait for the client's timeout; if it is gone "
            "for good, use oncemesh forget",
        )


def reported_faults(seen: Symptoms) -> Found:
    """Find the faults that routers report in their own status."""
    for what in disks(seen.views.values()):
        yield Level.FAIL, f"router {what}", "make room on its disk; see docs/operations.md, What to watch"
    for name, view in seen.views.items():
        exceeded = view.status["exceeded"] if view.status is not None else {}
        if beyond := {limit: count for limit, count in exceeded.items() if count}:
            said = ", ".join(f"{limit} {count} times" for limit, count in beyond.items())
            yield (
                Level.WARN,
                f"limits exceeded at router {name}: {said}",
                "oncemesh events shows the clients; see docs/security.md, limits",
            )


def replica_sets(seen: Symptoms) -> Found:
    leaderless: dict[tuple[str, ...], list[str]] = {}
    needy: dict[tuple[str, ...], list[str]] = {}
    for one in seen.sets:
        if not one.has_begun:
            continue
        if one.leader is None:
            leaderless.setdefault(tuple(sorted(one.best["voters"] or one.best["ring"])), []).append(one.name)
        elif one.needed and len(one.best["ring"]) > TWO:
            needy.setdefault(tuple(sorted(one.needed)), []).append(one.name)
    for voters, names in leaderless.items():
        todo = f"start these; a majority of them has to be in contact: {', '.join(voters)}"
        yield Level.FAIL, f"no router leads {in_words(names)}: no queue of these can change", todo
    for needed, names in needy.items():
        todo = "start the other routers of these, or wait until their replicas have caught up"
        yield Level.WARN, f"if router {joined_with_or(needed)} stops, no majority is left of {in_words(names)}", todo
    yield from _lasting(seen)
    for what in aside(seen.sets):
        yield Level.WARN, f"router {what}", "the router's log has the file's new name; the leader sends a new copy"
    yield from _differing(seen)
    yield from _other_voters(seen)


def _lasting(seen: Symptoms) -> Found:
    """Find learners that do not become voters, and voters that stay away, as the leaders of their sets report."""
    away: dict[str, list[tuple[float, str]]] = {}
    for one in seen.sets:
        row = one.best
        if row["role"] != LEADER:
            continue
        for router, since_s in row.get("learning_s", {}).items():
            if since_s >= LONG_S and router not in row.get("away_s", {}):
                lacks = row.get("behind", {}).get(router, 0)
                what = f"router {router} has been a learner of replica set {one.name} for {format_duration(since_s)}"
                todo = "look whether its disk or its link is too slow, or choose others: oncemesh queue voters"
                yield Level.WARN, f"{what}, and lacks {lacks} entries", todo
        for router, since_s in row.get("away_s", {}).items():
            if since_s >= LONG_S:
                away.setdefault(router, []).append((since_s, one.name))
    for router, sets in away.items():
        since = format_duration(max(since_s for since_s, _ in sets))
        todo = f"start router {router}; if it is gone for good, use oncemesh queue replace {router} OTHER"
        yield (
            Level.WARN,
            f"router {router}, a member of {in_words(name for _, name in sets)}, is away for {since}",
            todo,
        )


def _differing(seen: Symptoms) -> Found:
    """Find sets that the topologies of the routers describe differently, then other sets that have not begun."""
    differing: dict[str, list[str]] = {}
    unbegun: list[str] = []
    for one in seen.sets:
        if difference := _difference(one, seen):
            differing.setdefault(difference, []).append(one.name)
        elif not one.has_begun:
            unbegun.append(one.name)
    for difference, names in differing.items():
        todo = "copy one topology file to all hosts, and restart the routers that had another one"
        yield Level.FAIL, f"the topologies of routers differ about {in_words(names)}: {difference}", todo
    if unbegun:
        todo = f"start all routers; if one stays away, use oncemesh queue begin {unbegun[0]}"
        yield Level.FAIL, f"no queue can be declared in {in_words(unbegun)}: not begun yet", todo


def _difference(one: ShownSet, seen: Symptoms) -> str:
    """The difference between the topologies of the routers about a set, in words; empty if they agree.

    Voters are compared only for a set that has not begun. Once a set has begun, the topology no longer decides its
    voters.
    """
    said: dict[str, list[str]] = {}
    for router in seen.statuses:
        row = one.rows.get(router)
        voters = f"voters {', '.join(row['ring'])}" if row is not None and not one.has_begun else ""
        said.setdefault("no such set" if row is None else voters, []).append(router)
    if len(said) == 1:
        return ""
    return "; ".join(
        f"{what} at router{'s' if len(routers) > 1 else ''} {', '.join(routers)}"
        for what, routers in said.items()
        if what
    )


def _other_voters(seen: Symptoms) -> Found:
    """Find named sets that have other voters than the topology says, although the topologies of the routers agree about
    them."""
    queues = seen.topology.queues if seen.topology is not None else None
    named = {one.name: one for one in seen.sets}
    for said in queues.named if queues is not None else ():
        one = named.get(said.name)
        if one is None or not one.ring or {*one.ring} == {*said.voters} or _difference(one, seen):
            continue
        ring, voters = (", ".join(names) for names in (one.ring, said.voters))
        todo = "restart the routers: they read the topology when they start"
        if one.has_begun:
            choose = f"oncemesh queue voters {one.name} {' '.join(said.ring)}"
            todo = f"write {ring} into the topology file of each host, or have the voters of the file with {choose}"
        yield Level.WARN, f"replica set {one.name} has the voters {ring}, but {voters} in the topology", todo


def _has_topology(seen: Symptoms) -> object:
    return seen.topology is not None


def _has_queues(seen: Symptoms) -> object:
    return seen.topology is not None and seen.topology.queues is not None


def _has_views(seen: Symptoms) -> object:
    return seen.views


def _any_answers(seen: Symptoms) -> object:
    return any(view.status is not None for view in seen.views.values())


CHECKS: Final = (
    Check("descriptors", "enough descriptors for clients", always, descriptors),
    Check("memory", "enough memory for the routers", always, memory),
    Check(
        "time",
        "a time service keeps this host's clock right",
        lambda seen: seen.host.keeps_time is not None,
        time_is_kept,
    ),
    Check("audit", "the audit can run here", always, audit),
    Check("loops", "the inner loops of routers are compiled", always, loops),
    Check("topology", "the topology can be read", lambda f: f.topology is not None or f.unreadable, topology),
    Check("alternatives", "whichever router dies, the others can reach each other", _has_topology, alternatives),
    Check("voters", "each replica set has one voter or a majority to spare", _has_queues, voters),
    Check("openings", "no listener is open to other hosts without authentication", _has_topology, openings),
    Check("listeners", "the addresses of routers that do not run are free", _has_topology, listeners),
    Check("security", "certificates, secret and users are consistent", _has_topology, security_files),
    Check("certificates", "certificates are valid for at least a month", lambda seen: seen.certificates, certificates),
    Check("disk", "the run directory is writable and has free space", lambda seen: seen.disk is not None, disk),
    Check(
        "stores",
        "routers that do not run can read their replica sets",
        lambda seen: _has_queues(seen) and seen.disk is not None,
        stores,
    ),
    Check("rooms", "no replica set is nearly full, and no disk of another host", _any_answers, rooms),
    Check("crashes", "no router has crashed", _has_views, crashes),
    Check("running", "all routers run, answer and are ready", _has_views, running),
    Check("contacts", "all running routers are in contact and have the same plan", _any_answers, contacts),
    Check("clocks", "the clocks of the routers agree with this host", lambda seen: seen.clocks, clocks),
    Check("waiting", "publishers do not wait long for any client", _any_answers, waiting),
    Check(
        "sets",
        "each replica set has a leader and the voters of the topology, keeps its majority if a router stops, and lacks "
        "none of its members for long",
        lambda seen: seen.sets,
        replica_sets,
    ),
    Check("troubles", "no full disk, no limit exceeded", _any_answers, reported_faults),
)


def examine(seen: Symptoms) -> list[Diagnosis]:
    """Return the findings of all checks that apply. If a check finds no fault, its only finding has the level PASS."""
    findings: list[Diagnosis] = []
    for check in CHECKS:
        if check.applies(seen):
            found = [Diagnosis(level, check.name, what, todo) for level, what, todo in check.find(seen)]
            findings += found or [Diagnosis(Level.PASS, check.name, check.asks)]
    return findings
