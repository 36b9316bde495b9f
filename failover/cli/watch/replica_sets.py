"""The commands for replica sets. They show and change the replica sets of a mesh: `oncemesh queue sets`, `replicas`,
`voters`, `move`, `replace`, `begin` and `recover`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import click
import trio
from rich.text import Text

from failover.cli.clients import read_text
from failover.cli.watch.asking import Ask, asking, json_option, table
from failover.cli.watch.known_queues import set_named, sets_of_mesh
from failover.cli.watch.mesh_client import checked_routers, planned
from failover.client.management import Management
from router.cli.base import console
from router.entities.replicas import SET
from router.mesh.errors import RunError
from router.mesh.quantities import format_duration
from router.mesh.reading import expected
from router.mesh.shown.sets import ShownSet, members_of, replacement_commands
from router.text.printable import printable, printable_json

DONE_S: Final = 30.0
"""The seconds that a command waits for a set to carry out its request, or to come a step closer to it."""
LOOK_S: Final = 0.1
EVEN: Final = 2
"""A set with this number of voters needs each of them, so none of them may stop."""
MAJORITY: Final = "a majority of its voters has to be in contact; oncemesh doctor names them"


@click.command()
@click.argument("name", metavar="SET", callback=read_text)
@click.option("--add", "added", metavar="ROUTER", multiple=True, help="A router that is to be a voter.")
@click.option("--remove", "removed", metavar="ROUTER", multiple=True, help="A voter that is to be none any more.")
@click.option(
    "--async", "copies", metavar="ROUTER", multiple=True, help="A router that is to keep a copy, without a vote."
)
@click.option("--wait/--no-wait", default=True, help="Wait until the change is made. Default: --wait.")
@asking
def replicas(
    name: str, added: tuple[str, ...], removed: tuple[str, ...], copies: tuple[str, ...], wait: bool, ask: Ask
) -> None:
    """Give a set more, fewer or other replicas.

    The set goes on meanwhile, and changes one voter at a time. Its leader copies everything to a new router, then this
    router gets its vote; a router of --remove goes when all new routers have their votes. All options may be repeated.
    A router of --remove has a replica, and need not run. A router of --async keeps a copy of everything and has no
    vote, so the set never waits for it; oncemesh queue recover can use the copy.

    If the command is interrupted, the set makes the change all the same; repeat the command to wait for it. A set of
    two voters needs both, so the command warns of it.

    \b
    Examples:
      oncemesh queue replicas q0 --add d --remove c
      oncemesh queue replicas eu --add d --add e --no-wait
      oncemesh queue replicas eu --async far
    """
    if not (added or removed or copies):
        raise click.UsageError("expected --add ROUTER, --remove ROUTER or --async ROUTER")

    async def main(management: Management) -> None:
        known = await set_named(management, name)
        routers = await planned(management, ())
        checked_routers((*added, *copies), routers)
        checked_routers(removed, sorted({*routers, *known.members}))
        _leader_of(known)
        ring, kept = _changed(known, added, removed, copies)
        if ({*ring}, {*kept}) != ({*known.ring}, {*known.copies}):
            _check_change(known, ring)
        await choose_voters(management, known, ring, kept, wait=wait)

    ask(main)


def _changed(
    known: ShownSet, added: Collection[str], removed: Collection[str], copies: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return two lists of routers: the ring, from which the set takes its voters, and the routers with an asynchronous
    copy. In both lists new routers come last. Routers that are to go are in neither list.

    Raises RunError in these cases: a router is in two options; a router that is to go has no replica; no voter is left.
    """
    options = {"--add": {*added}, "--remove": {*removed}, "--async": {*copies}}
    for one, other in combinations(options, 2):
        if both := sorted(options[one] & options[other]):
            raise RunError(f"router {both[0]} is in {one} and in {other}, expected one of them")
    is_made = added and {*added}.issubset(known.ring)  # the user has repeated the same command
    for router in removed:
        if router not in known.members and not is_made:
            raise RunError(f"router {router} is no voter of set {known.name}, {expected(router, known.ring)}")
    ring = [router for router in dict.fromkeys((*known.ring, *added)) if router not in (*removed, *copies)]
    if not ring:
        raise RunError(f"set {known.name} would have no voter, expected one or more: name others with --add")
    return ring, [router for router in dict.fromkeys((*known.copies, *copies)) if router not in (*removed, *added)]


def _check_change(known: ShownSet, ring: Sequence[str]) -> None:
    """Raises RunError if the set is already changing to another ring, or if the routers that answer would not be a
    majority of the new ring."""
    name = known.name
    if not known.has_members(known.ring):
        what = f"set {name} is changing its voters to {', '.join(known.ring)}"
        raise RunError(f"{what}: wait until it is done, or name all voters with oncemesh queue voters {name}")
    silent = [router for router in ring if router not in known.rows]
    for router in silent:
        if router not in known.ring:
            raise RunError(f"router {router} does not answer: start it, or name another router")
    if 2 * len(silent) >= len(ring):
        what = f"set {name} would have the voters {', '.join(ring)}, of which {', '.join(silent)} do not answer"
        raise RunError(f"{what}: no majority would be left, start them first or name other routers")


@click.command()
@click.argument("name", metavar="SET", callback=read_text)
@click.argument("routers", metavar="ROUTER...", nargs=-1, required=True)
@asking
def voters(name: str, routers: tuple[str, ...], ask: Ask) -> None:
    """Choose the routers that have the replicas of a set.

    The set goes on meanwhile. Its leader first copies everything to routers that are new, then takes out those that are
    not named. The first router is preferred as leader. Use three routers, or five: a set of two needs both.

    \b
    Examples:
      oncemesh queue voters q0 a b d
      oncemesh queue voters eu a b c d e --url amqp://10.0.0.7:5672
    """

    async def main(management: Management) -> None:
        await choose_voters(management, await set_named(management, name), routers)

    ask(main)


@click.command()
@click.argument("name", metavar="SET", callback=read_text)
@click.argument("router", callback=read_text)
@asking
def move(name: str, router: str, ask: Ask) -> None:
    """Have another voter lead a set.

    The leader waits until ROUTER has everything, and takes no messages meanwhile. ROUTER is preferred from then on:
    when it comes back after a stop, it leads again after a minute.

    
    Examples:
      oncemesh queue move q0 c
    """

    async def main(management: Management) -> None:
        known = await set_named(management, name)
        voters = known.best["voters"]
        if router not in voters:
            raise RunError(f"router {router} is no voter of set {name}, {expected(router, voters)}")
        others = [other for other in known.ring if other != router]
        await _tell_set(management, _leader_of(known), name, {"ring": [router, *others]})
        await _until(management, name, f"router {router} is to lead set {name}", lambda one: one.leader == router)
        click.echo(printable(f"set {name} is led by router {router}"))

    ask(main)


@click.command()
@click.argument("old", metavar="OLD", callback=read_text)
@click.argument("news", metavar="NEW...", nargs=-1, required=True)
@asking
def replace(old: str, news: tuple[str, ...], ask: Ask) -> None:
    """Replace a router as a voter in all replica sets that have it.

    Each of these sets keeps its other voters and has NEW in the place of OLD. If you give several routers as NEW, each
    set takes the first of them that is not yet its voter. OLD need not run, but a majority of the voters of each set
    has to run. One set after the other copies everything to NEW, then takes out OLD. If the command is interrupted,
    repeat it.

    \b
    Examples:
      oncemesh queue replace c d
      oncemesh queue replace c d e
    """

    async def main(management: Management) -> None:
        routers = await planned(management, ())
        checked_routers(news, routers)
        sets = await sets_of_mesh(management)
        chosen = _replaced(sets.values(), old, news, routers)
        for name, ring in chosen.items():
            _leader_of(sets[name])
            if silent := {*ring}.intersection(news) - sets[name].rows.keys():
                raise RunError(f"router {min(silent)} does not answer: start it, or name another router")
        for name, ring in chosen.items():
            await choose_voters(management, await set_named(management, name), ring)

    ask(main)


def _replaced(
    sets: Collection[ShownSet], old: str, news: Sequence[str], routers: Iterable[str]
) -> dict[str, list[str]]:
    """Return the new voters of each set that has the router `old`. `routers` has all routers of the mesh.

    Raises RunError if no set has `old`, or if all routers of `news` are already voters of a set.
    """
    held = [one for one in sets if old in one.members and old not in one.copies]
    if not held:
        known = sorted({router for one in sets for router in one.members})
        raise RunError(f"router {old} is no voter of any replica set{f', {expected(old, known)}' if known else ''}")
    chosen: dict[str, list[str]] = {}
    for one in held:
        new = one.first_new(news)
        if new is None and old in one.ring:
            what = f"router {news[0]} is a voter" if len(news) == 1 else f"routers {', '.join(news)} are voters"
            todo = replacement_commands(held, old, [*news, *(router for router in routers if router != old)])
            raise RunError(f"{what} of replica set {one.name} already, for example use {todo}")
        chosen[one.name] = [new if new is not None and router == old else router for router in one.ring]
    return chosen


@click.command()
@click.argument("name", metavar="SET", callback=read_text)
@click.option("--may-lose", is_flag=True, help="Begin it although a router that does not answer may have it already.")
@asking
def begin(name: str, may_lose: bool, ask: Ask) -> None:
    """Begin a replica set that does not begin by itself.

    A set begins by itself when all routers of the mesh are in contact for the first time. If one of them stays away, or
    has lost its store on the way, use this command; all voters of the set have to run. If a router that does not answer
    has the set, the two have different queues: when it comes back, one of the two is set aside.

    \b
    Examples:
      oncemesh queue begin q0
      oncemesh queue begin q0 --may-lose
    """

    async def main(management: Management) -> None:
        known = await set_named(management, name)
        if known.has_begun and known.leader is not None:
            raise RunError(f"set {name} has begun, and router {known.leader} leads it")
        silent = sorted({*await planned(management, ())} - {*known.rows})
        if silent and not may_lose:
            what = f"{', '.join(silent)} do not answer" if len(silent) > 1 else f"{silent[0]} does not answer"
            raise RunError(f"router {what} and may have set {name} already: start it, or use --may-lose")
        # A store in `empty` has a life and no entry. The set begins when the routers have set these stores aside.
        empty = [one for one, row in known.rows.items() if row["role"] == "learner" and not row["commit"]]
        voters = [router for router in known.best["ring"] if router in known.rows]
        if not empty and not voters:
            raise RunError(f"no voter of set {name} answers, expected {', '.join(known.best['ring'])}")
        for at in empty or voters[:1]:
            await _tell_set(management, at, name, {"begin": True})
        led = await _until(management, name, f"set {name} was told to begin", lambda one: one.leader is not None)
        click.echo(printable(f"set {name} has begun, led by router {led.leader}"))

    ask(main)


@click.command()
@click.argument("name", metavar="SET", callback=read_text)
@click.option("--from", "source", required=True, metavar="ROUTER", help="The router whose store is kept.")
@click.option("--may-lose", is_flag=True, help="Needed: changes that only other routers have are lost.")
@asking
def recover(name: str, source: str, may_lose: bool, ask: Ask) -> None:
    """Go on with one store of a replica set that has lost the others for good.

    Only for a set that has no leader and never gets one again, because a majority of its stores is lost. The store of
    ROUTER is the set from then on; the other voters get copies of it. Changes that only other routers have are lost,
    also if they were answered. If such a router comes back, its store is set aside, not deleted. Without --may-lose the
    command shows what each router has, and changes nothing: choose the one with the highest term, and of these the one
    with most entries.

    \b
    Examples:
      oncemesh queue recover q0 --from c
      oncemesh queue recover q0 --from c --may-lose
    """

    async def main(management: Management) -> None:
        known = await set_named(management, name)
        if known.leader is not None:
            raise RunError(f"router {known.leader} leads set {name}: it needs no recovery")
        stores = {router: row for router, row in known.rows.items() if row["role"] != "proxy"}
        if source not in stores:
            raise RunError(f"router {source} has no replica of set {name}, {expected(source, sorted(stores))}")
        if not may_lose:
            has = "; ".join(f"{one} has term {row['term']}, {row['commit']} entries" for one, row in stores.items())
            raise RunError(f"{has}: what only other routers have will be lost, expected --may-lose to confirm that")
        await _tell_set(management, source, name, {"recover": True})
        led = await _until(management, name, f"set {name} was told to recover", lambda one: one.leader is not None)
        click.echo(printable(f"set {name} goes on with the store of router {source}, led by router {led.leader}"))

    ask(main)


async def choose_voters(
    management: Management,
    known: ShownSet,
    routers: Sequence[str],
    copies: Sequence[str] | None = None,
    *,
    wait: bool = True,
) -> None:
    """Make these routers the voters of a set, and wait until they are. `copies`: the routers that are to keep an
    asynchronous copy; None: the routers that keep one at present and do not become voters. The command does
    not wait until the copies are complete. Raises RunError if the set has no leader, or if its members do not change
    for DONE_S seconds."""
    name, listed = known.name, ", ".join(routers)
    if copies:
        listed += f" and asynchronous copies at {', '.join(copies)}"
    chosen = {} if copies is None else {"async": list(copies)}
    await _tell_set(management, _leader_of(known), name, {"ring": list(routers), **chosen})
    if wait:
        await _until(management, name, f"set {name} is changing its voters", lambda one: one.has_members(routers))
        click.echo(printable(f"set {name} has the voters {listed}"))
    else:
        click.echo(printable(f"set {name} is changing its voters to {listed}: see oncemesh queue sets"))
    if len({*routers}) == EVEN:
        click.echo(
            printable(f"warning: a set of two voters needs both: {name} stops if one of {listed} does"), err=True
        )


def _leader_of(known: ShownSet) -> str:
    if known.leader is None:
        raise RunError(f"no router leads set {known.name}: {MAJORITY}")
    return known.leader


async def _tell_set(management: Management, router: str, name: str, body: Mapping[str, Any]) -> None:
    await management.ask("UPDATE", router, body, type=SET.managed, name=name)


async def _until(management: Management, name: str, what: str, done: Callable[[ShownSet], bool]) -> ShownSet:
    """Wait until `done` holds for the set, and return the set. Meanwhile show its members.

    Raises RunError when the members have not changed for DONE_S seconds. The error's text begins with `what`.
    """
    former, until = "", trio.current_time() + DONE_S
    with console().status(Text(printable(what))) as status:
        while not done(one := await set_named(management, name)):
            now, members = trio.current_time(), members_of(one)
            if members != former:
                former, until = members, now + DONE_S
                status.update(Text(printable(f"{what}: {members}")))
            elif now >= until:
                passed = format_duration(DONE_S)
                raise RunError(f"{what}, and nothing has changed for {passed}: see oncemesh queue sets")
            await trio.sleep(LOOK_S)
        return one


@click.command()
@json_option
@asking
def sets(machine: bool, ask: Ask) -> None:
    """List all replica sets with their leaders, voters and numbers of queues.

    `Needs` names the voters whose stop takes the majority from the set; `none` is what you want. A voter with `+` does
    not vote yet: the leader copies everything to it. How much it has is behind its name, in per cent. A router with `~`
    keeps an asynchronous copy, without a vote.

    \b
    Examples:
      oncemesh queue sets
      oncemesh queue sets --json | jq -r '.[] | select(.leader == null) | .name'
    """

    async def main(management: Management) -> None:
        found = (await sets_of_mesh(management)).values()
        if machine:
            click.echo(printable_json([{**one.best, "needs": one.needed} for one in found]))
        else:
            headings = ("Set", "Prefix", "Leader", "Voters", "Needs", "Queues")
            console().print(table(headings, map(_set_cells, found)))

    ask(main)


def _set_cells(one: ShownSet) -> list[str]:
    row = one.best
    needs = ", ".join(one.needed) or "none"
    return [
        one.name,
        row["prefix"],
        one.leader or "none",
        members_of(one) or ", ".join(row["ring"]),
        needs if one.leader is not None else "",
        str(row["queues"]),
    ]
