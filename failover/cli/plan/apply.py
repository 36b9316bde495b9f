"""The commands `apply` and `remove`. They change the plan of a running mesh, that is its routers and links (protocol
11)."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
import yaml

from failover.cli.clients import find_target
from failover.cli.fetch import fetcher
from failover.cli.mesh import HALF_UP
from failover.cli.plan.replicas import WantedSets, move_replicas, new_rings
from failover.cli.watch.known_queues import sets_of_mesh
from failover.client.management import Management
from router.cli.base import console, run, run_dir_option, until_signal
from router.mesh.config import AMQP, HTTP, INTER, MQTT, Queues, RouterConfig, Topology
from router.mesh.errors import FileError, RunError
from router.mesh.launcher import HalfUpError, Launcher
from router.mesh.reading import expected
from router.mesh.rundir import RouterEntry, RunDirectory, find_run_dir
from router.mesh.shown.sets import ShownSet
from router.mesh.shown.status_view import headline, routers_table
from router.mesh.status import contacts_of, look, planned
from router.mesh.topology import load
from router.security.doors import check

ANSWER_S = 10
SAME = ("addresses", "queues", "timing", "limits", "log", "security")
"""The parts of a topology file that a running mesh cannot change, because a router reads them only when it starts."""


@click.command()
@click.argument("topology", type=click.Path(path_type=Path))
@run_dir_option
def apply(topology: Path, run_dir: Path | None) -> None:
    """Change a running mesh to match a topology file.

    New routers in the file start here, join the mesh, and then accept clients. Other routers ask clients that can
    resume to move there, a few at a time, until all routers have about equally many links. Routers that the file no
    longer has give their replicas of queues to other routers, then move their clients to others and stop. A named
    replica set gets the voters of the file if the file changes them, and a hashed set with fewer voters than `replicas`
    gets more. Links and their costs change as the file says. Nothing else may differ: neither the other sections of the
    file, nor the listeners of running routers. Routers read those when they start.

    \b
    Example: oncemesh apply bigger.yaml
    """
    directory, wanted = find_run_dir(run_dir), load(topology)
    former = load(directory.topology_path)
    differing = [name for name in SAME if _fixed(wanted, name) != _fixed(former, name)]
    if differing:
        raise RunError(
            f"{topology}: {', '.join(differing)} cannot change while the mesh runs, expected the former values"
        )
    _check_listeners(wanted, former, directory)
    check(wanted, wanted.routers)
    raise click.exceptions.Exit(run(_apply, directory, run(_steps, wanted, former, directory), ()))


def _fixed(topology: Topology, name: str) -> object:
    """The part `name` of the topology, which a running mesh cannot change. The part `queues` comes without the settings
    of replica sets that `oncemesh apply` may change."""
    part = getattr(topology, name)
    if not isinstance(part, Queues):
        return part
    named = tuple(attrs.evolve(one, voters=(), copies=(), prefer=None) for one in part.named)
    return attrs.evolve(part, named=named, replicas=0)


@click.command()
@click.argument("router")
@run_dir_option
@click.option(
    "--force", is_flag=True, help="Remove a router that does not run; durable links that only it knows are lost."
)
def remove(router: str, run_dir: Path | None, force: bool) -> None:
    """Remove a router from a running mesh for good.

    The router first moves its clients to other routers. A router that does not run may know durable links that no
    other router knows, so --force is needed to remove it. Until then the other routers keep the links and deliveries
    that concern it.

    Another router first gets the replicas of queues that the router has. If all other routers have replicas of such a
    set already, the command refuses: choose fewer voters first (oncemesh queue voters). A router that does not run is
    removed with --force if its sets have a majority without it; where no router takes its place, it stays a voter in
    name until others are chosen.

    \b
    Examples:
      oncemesh remove d
      oncemesh remove d --force
    """
    directory = find_run_dir(run_dir)
    former = load(directory.topology_path)
    views = run(look, directory, fetcher(directory))
    listed = planned(views)  # empty if no router answers
    known = {*former.routers, *directory.read().routers, *listed}
    if router not in known and (listed or not force):
        raise RunError(f'there is no router "{router}" in this mesh, {expected(router, sorted(known))}')
    there = {*directory.running()}.union(*map(contacts_of, views.values()))
    if router not in there and not force:
        raise RunError(
            f"router {router} does not run: start it, or use --force and lose the durable links that only it knows"
        )
    members = {name for name, standing in listed.items() if standing == "member"}
    if joined := sorted(members - former.routers.keys() - {router}):
        raise RunError(f"{', '.join(joined)} joined later: use oncemesh apply with a topology that lists them")
    sets = run(_sets, directory) if former.queues is not None and members else []
    gone = [router] if router in members else []
    sought = WantedSets([name for name in former.routers if name != router], gone, forced=force)
    rings = new_rings(sets, sought)
    wanted = _without(former, router, directory, {one.name: one.ring for one in sets} | rings)
    raise click.exceptions.Exit(run(_apply, directory, _Steps((), rings, sought, wanted), (router,) if force else ()))


def _without(topology: Topology, router: str, directory: RunDirectory, rings: Mapping[str, Sequence[str]]) -> Topology:
    """Return the topology without a router and its links. `rings` has the new voters of each replica set that changes.

    The function writes the topology into a file of the run directory, and reads it from there with all checks. Raises
    RunError if it is not valid.
    """
    said = yaml.safe_load(topology.path.read_text())
    said["routers"].pop(router, None)
    said["links"] = [link for link in said.get("links") or [] if router not in _ends(link)]
    if said.get("queues"):
        _leave_sets(said["queues"], router, len(said["routers"]), rings)
    path = directory.path / "topology.removed.yaml"
    path.write_text(yaml.safe_dump(said, sort_keys=False))
    try:
        return attrs.evolve(load(path), base=Path(directory.read().base))
    except FileError as error:
        whys = "; ".join(message.removeprefix(f"{path}:").lstrip("0123456789: ") for message in error.messages)
        raise RunError(
            f"without router {router} the topology is not valid: {whys}; change the file and use oncemesh apply"
        ) from None


def _leave_sets(queues: dict[str, Any], router: str, left: int, rings: Mapping[str, Sequence[str]]) -> None:
    """Take a router out of the voters and copies in the part `queues` of a topology file. Limit `replicas` to `left`,
    the number of routers that stay. `rings` has the new voters of each replica set that changes."""
    for one in queues.get("named") or []:
        if router in one["voters"]:
            voters = rings.get(one["name"]) or one["voters"]
            one["voters"] = [voter for voter in voters if voter != router]
            if one.get("prefer") not in one["voters"]:
                one.pop("prefer", None)
        if router in one.get("async", ()):
            one["async"].remove(router)
    if queues.get("replicas", 0) > left:
        del queues["replicas"]


def _with(wanted: Topology, former: Topology, gone: Iterable[str], directory: RunDirectory) -> Topology:
    """Return the wanted topology, together with the routers of the former topology that are to leave, and their links.

    The function writes the topology into a file of the run directory, and reads it from there with all checks. Raises
    RunError if `former` lacks one of these routers.
    """
    said, was = (yaml.safe_load(one.path.read_text()) for one in (wanted, former))
    for router in gone:
        if router not in was["routers"]:
            raise RunError(
                f"router {router} joined later and has replicas: apply a topology that lists it and the new routers "
                "first, then this one"
            )
        said["routers"][router] = was["routers"][router]
    listed = said.get("links") or []
    said["links"] = listed + [link for link in was.get("links") or [] if not {*_ends(link)}.isdisjoint(gone)]
    path = directory.path / "topology.moving.yaml"
    path.write_text(yaml.safe_dump(said, sort_keys=False))
    return attrs.evolve(load(path), base=wanted.base)


def _ends(link: object) -> Collection[str]:
    return link["between"] if isinstance(link, dict) else link  # type: ignore[return-value]  # as it was read


def _check_listeners(wanted: Topology, former: Topology, directory: RunDirectory) -> None:
    """Raises RunError if the topology changes a listener of a router that runs. A router reads its listeners only when
    it starts."""
    entries, running = directory.read().routers, directory.running()
    for name, router in wanted.routers.items():
        if name in running and name in former.routers:
            for kind, was, said in _moved(router, former.routers[name], entries[name]):
                raise RunError(
                    f"{wanted.path}: {kind} of router {name} cannot change while it runs, expected {was}, not {said}"
                )


def _moved(wanted: RouterConfig, former: RouterConfig, entry: RouterEntry) -> Iterator[tuple[str, str, str]]:
    """Yield each address of a router that differs between the two topology files, as (kind, former, wanted). If the
    former file asked for a free port, the wanted file may name the port that the router has got."""
    for kind in dict.fromkeys([AMQP, INTER, HTTP, MQTT, "advertise", *former.more, *wanted.more]):
        was, said = (getattr(one, kind, None) or one.more.get(kind) for one in (former, wanted))
        if said != was and str(said) != entry.listeners.get(kind):
            yield kind, str(was or "none"), str(said or "none")


@attrs.frozen
class _Steps:
    """The steps that `apply` and `remove` take, in this order."""

    first: Sequence[Topology]
    """The first steps: the mesh has to match these plans, one after the other. So new routers are in the mesh before
    replicas move to them."""
    rings: Mapping[str, Sequence[str]]
    """The second step: these replica sets have to get these new rings."""
    sought: WantedSets
    """The operator's wishes for the replica sets."""
    last: Topology
    """The last step: the mesh has to match this plan. Routers that leave in this step have no replicas by then."""


async def _steps(wanted: Topology, former: Topology, directory: RunDirectory) -> _Steps:
    """Return the steps. Raises RunError if a replica set needs a router that would leave."""
    if wanted.queues is None:
        return _Steps((), {}, WantedSets(()), wanted)
    views = await look(directory, fetcher(directory))
    members = {name for name, standing in planned(views).items() if standing == "member"}
    gone = sorted(members - wanted.routers.keys())
    sets = await _sets(directory) if members else []
    sought = WantedSets.of(wanted, former, gone)
    rings = new_rings(sets, sought)
    if not rings or wanted.routers.keys() <= members:
        return _Steps((), rings, sought, wanted)
    held = [router for router in gone if any(one.has(router) for one in sets)]
    return _Steps((_with(wanted, former, held, directory) if held else wanted,), rings, sought, wanted)


async def _sets(directory: RunDirectory) -> list[ShownSet]:
    async with _management(directory) as management:
        return [*(await sets_of_mesh(management)).values()]


def _management(directory: RunDirectory) -> Management:
    target = find_target(directory.path, (), None, "apply")
    return Management(target.urls, target.credentials, timeout=ANSWER_S)


async def _apply(directory: RunDirectory, steps: _Steps, forced: Collection[str]) -> int:
    """Take the steps, and return the exit status."""
    out, lack = console(), ""
    launcher = Launcher(directory, fetcher(directory))
    async with until_signal() as scope:
        try:
            for topology in steps.first:
                await _launch(launcher, topology, forced)
            await _move(directory, steps)
            if steps.first != (steps.last,):
                await _launch(launcher, steps.last, forced)
        except HalfUpError as error:
            lack = str(error)
        views = await look(directory, fetcher(directory))
        out.print(headline(steps.last.mesh, views.values()), style="bold")
        out.print(routers_table(views))
        if lack:
            out.print(lack, style="yellow", soft_wrap=True)
    if scope.cancelled_caught:
        raise RunError("interrupted, but the mesh applies the change all the same: see oncemesh status")
    return HALF_UP if lack else 0


async def _launch(launcher: Launcher, topology: Topology, forced: Collection[str]) -> None:
    with console().status(f"applying {topology.path.name}"):
        await launcher.apply(topology, forced)


async def _move(directory: RunDirectory, steps: _Steps) -> None:
    if steps.rings:
        async with _management(directory) as management:
            await move_replicas(management, steps.rings, steps.sought)
