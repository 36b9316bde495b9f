"""The commands `oncemesh queue …`. They show and change the declared queues of a mesh, by `$management` of any router
(protocol 13)."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar

import click
from rich.text import Text

from failover.cli.clients import read_text
from failover.cli.json_message import as_json, as_text
from failover.cli.watch.asking import Ask, asking, json_option, table
from failover.cli.watch.known_queues import (
    NOT_FOUND,
    KnownQueue,
    all_queues,
    queue_named,
    sets_of_mesh,
    without_leader,
)
from failover.cli.watch.replica_sets import begin, move, recover, replace, replicas, sets, voters
from failover.client.management import Management, RefusedError
from router.amqp.format.errors import AmqpError
from router.cli.base import console
from router.cli.commands import Subcommands
from router.entities.queues import DECLARED_QUEUE, SETTINGS
from router.mesh.errors import RunError
from router.mesh.quantities import format_duration, format_size, parse_duration, parse_size
from router.mesh.reading import whole
from router.mesh.shown.waits import counted
from router.text.printable import printable, printable_json
from topic.queues.operations import QueueSettings
from topic.settings import MOST_FACTOR

Command = TypeVar("Command", bound=Callable[..., Any])

MOST: Final = 10**12 - 1
"""The highest number that a setting of a queue can have."""
MOST_SHOWN: Final = 10_000
"""The highest number of messages that `peek` shows at once."""
MOST_POSITION: Final = 2**63 - 1
IN_MS: Final[Mapping[str, str]] = {
    "--ttl": "ttl_ms",
    "--lock": "lock_ms",
    "--retry-after": "retry_after_ms",
    "--retry-most": "retry_most_ms",
}
"""Maps an option to its setting, if the setting has another name."""
NONE: Final = "none"
"""The value of an option that removes the setting."""


def _milliseconds(text: str) -> int:
    return max(1, round(parse_duration(text) * 1000))


READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "limit_messages": whole(1, MOST),
    "limit_bytes": parse_size,
    "ttl_ms": _milliseconds,
    "bind": list,
    "dead_letter": str,
    "redeliveries": whole(0, MOST),
    "lock_ms": _milliseconds,
    "retry_after_ms": _milliseconds,
    "retry_factor": whole(1, MOST_FACTOR),
    "retry_most_ms": _milliseconds,
}
FLAGS: Final[Mapping[str, str]] = {
    "single_active": "One consumer gets all messages until it has ended, then the next one.",
    "exclusive": "The queue has one consumer at a time, and refuses others.",
}
"""Maps each setting that is either on or off to its help text."""
NOTHING: Final[Mapping[str, str]] = {
    "bind": "bindings",
    "dead_letter": "dead letters",
    "redeliveries": "number of its own",
    "retry_after_ms": "pause",
    "retry_factor": "factor",
}
"""Maps a setting to the noun that the help text has after "none for no", as in "none for no bindings". A setting
without an entry is a limit, so its noun is "limit"."""


def read_setting(context: click.Context, param: click.Parameter, value: Any) -> Any:
    """The value of an option. It is `none` if the user removes the setting, and None if the user does not give the
    option."""
    if value is None or value == NONE:
        return value
    if value in ((), (NONE,)):  # an option that the user may repeat has a tuple of values
        return NONE if value else None
    name = str(param.name)
    try:
        read = READERS[name](value)
        QueueSettings.of({name: read})
    except ValueError as error:
        raise click.BadParameter(f"{error}, or {NONE} for no {NOTHING.get(name, 'limit')}") from None
    return read


def setting_options(command: Command) -> Command:
    """Add to a command an option for each setting. The command gets the settings that the user gives in the dict
    `settings`, by name."""

    @wraps(command)
    def told(**given: Any) -> Any:
        settings = {name: value for name in (*READERS, *FLAGS) if (value := given.pop(name)) is not None}
        return command(settings=settings, **given)

    for name, what in FLAGS.items():
        flag = name.replace("_", "-")
        told = click.option(f"--{flag}/--no-{flag}", name, default=None, help=what)(told)

    for name, metavar, what in (
        (
            "--redeliveries",
            "NUMBER",
            "How often a message fails before it is a dead letter, 20 times without this",
        ),
        ("--lock", "DURATION", "How long a consumer may have a message without an answer, such as 30m"),
        ("--retry-most", "DURATION", "How long a message pauses after a failure at most, such as 1h"),
        ("--retry-factor", "NUMBER", "How many times longer it pauses after each further failure"),
        ("--retry-after", "DURATION", "How long a message pauses after its first failure, such as 1s"),
        ("--dead-letter", "ADDRESS", "The topic or queue for messages that are rejected, fail too often or expire"),
        ("--bind", "ADDRESS", "A topic or pattern whose messages go into the queue, too; repeat it for more"),
        ("--ttl", "DURATION", "How long a message is in the queue at most, such as 10m"),
        ("--limit-bytes", "SIZE", "How many bytes of messages the queue has at most, such as 64MiB"),
        ("--limit-messages", "NUMBER", "How many messages the queue has at most, such as 10000"),
    ):
        named = (name, IN_MS[name]) if name in IN_MS else (name,)
        setting = named[-1].removeprefix("--").replace("-", "_")
        what += f", or {NONE} for no {NOTHING.get(setting, 'limit')}."
        option = click.option(*named, metavar=metavar, multiple=name == "--bind", callback=read_setting, help=what)
        told = option(told)
    return told  # type: ignore[return-value]


name_argument = click.argument("name", callback=read_text)


@click.group(cls=Subcommands)
def queue() -> None:
    """Declare and change the replicated queues of a mesh, and look after their replica sets.

    A queue belongs to a replica set: routers of which a majority decides every change, and keeps it on disk. Each
    command may ask any router of the mesh; that router asks the set's leader. If no majority of the set answers, a
    change fails after 10 s; it may be done all the same, so look, or repeat the command: a repeated change does no
    harm. In a mesh with users or certificates, only operators may change queues.

    Any client publishes to the address of a queue and consumes from it, at any router. A queue that nobody has
    declared is declared with its first client, without settings.

    \b
    Examples:
      oncemesh queue declare queue/orders --limit-messages 10000
      oncemesh queue list
      oncemesh queue sets
    """


@queue.command()
@name_argument
@setting_options
@json_option
@asking
def declare(name: str, settings: dict[str, Any], machine: bool, ask: Ask) -> None:
    """Create a queue; no error if it exists with the same settings.

    NAME is an address of kind queue, such as queue/orders. The topology says which addresses these are, and which
    replica set has which queue. If a queue of this name has other settings, the command fails and changes nothing: use
    `oncemesh queue configure`.

    \b
    Examples:
      oncemesh queue declare queue/orders
      oncemesh queue declare queue/orders --limit-messages 10000 --limit-bytes 64MiB --url amqp://10.0.0.7:5672
      oncemesh queue declare queue/orders --bind topic/orders --bind 'topic/eu/*'
      oncemesh queue declare queue/orders --dead-letter queue/orders/dead --redeliveries 5
      oncemesh queue declare queue/orders --retry-after 1s --retry-factor 2 --retry-most 1h
      oncemesh queue declare queue/orders --single-active
      oncemesh queue declare queue/orders --exclusive
    """

    _check(settings)

    async def main(management: Management) -> None:
        row = await _change(management, "CREATE", name, _body(settings))
        _tell(row, "is declared", machine=machine)

    ask(main)


@queue.command()
@name_argument
@setting_options
@json_option
@asking
def configure(name: str, settings: dict[str, Any], machine: bool, ask: Ask) -> None:
    """Change settings of a queue; the others keep their values.

    If somebody else changes the settings at the same time, the command may fail: look, and repeat it.

    \b
    Examples:
      oncemesh queue configure queue/orders --limit-messages 50000
      oncemesh queue configure queue/orders --limit-bytes none
    """
    if not settings:
        options = (
            "--limit-messages, --limit-bytes, --ttl, --bind, --dead-letter, --redeliveries, --lock, --retry-after, "
            "--retry-factor, --retry-most, --single-active or --exclusive"
        )
        raise click.UsageError(f"there is nothing to change, expected {options}")

    async def main(management: Management) -> None:
        known = await queue_named(management, name)
        changed = {**known.settings.values(), **settings}
        _check(changed)
        body = _body(changed) | {"version": known.version}
        _tell(await _change(management, "UPDATE", name, body, identity=known.id), "is configured", machine=machine)

    ask(main)


@queue.command("list")
@json_option
@asking
def show_all(machine: bool, ask: Ask) -> None:
    """List all queues with their replica sets, leaders, messages, consumers and settings.

    The oldest message may be older than `Oldest` says, because a leader knows no times before its election.

    \b
    Examples:
      oncemesh queue list
      oncemesh queue list --json | jq -r '.[] | select(.leader == null) | .name'
    """

    async def main(management: Management) -> None:
        known = await sets_of_mesh(management)
        queues, leaderless = await all_queues(management, known), without_leader(known)
        if leaderless:
            click.echo(f"warning: no router leads {leaderless}: this list may lack queues", err=True)
        if machine:
            click.echo(printable_json([one.as_json() for one in queues]))
        elif not queues:
            click.echo("no queue is known" if leaderless else "no queue is declared")
        else:
            headings = ("Queue", "Set", "Leader", "Messages", "Bytes", "Oldest", "Consumers", "Settings")
            console().print(table(headings, map(_cells, queues), "Set", "Bytes", "Settings"))

    ask(main)


@queue.command()
@name_argument
@json_option
@asking
def show(name: str, machine: bool, ask: Ask) -> None:
    """Show one queue and the replicas of its set.

    The oldest message may be older than shown, because a leader knows no times before its election. The leader also
    counts from its election on how many messages came, left, were given back or purged, have expired, or went to
    another address as dead letters.

    The table has a row for each router that answers. `Behind` is how many entries of the log its disk lacks, as the
    leader says. `May stop` says whether the set keeps its majority if this router stops now.

    \b
    Examples:
      oncemesh queue show queue/orders
      oncemesh queue show queue/orders --json | jq .replicas.a.applied
    """

    async def main(management: Management) -> None:
        known = await queue_named(management, name)
        if machine:
            click.echo(printable_json(known.as_json() | {"replicas": known.set.rows}))
            return
        out = console()
        leader = f"led by router {known.leader}" if known.leader else "without a leader"
        out.print(Text(printable(f"{known.name}: {known.settings}"), style="bold"))
        moves = f"moves: {known.set.best['moves']}"
        out.print(Text(printable(f"id {known.id}, in set {known.set.name}, {leader}, {moves}")))
        for line in _figures(known):
            out.print(Text(printable(line)))
        headings = ("Router", "Role", "Term", "Committed", "Applied", "Behind", "Copied", "Unstored", "May stop")
        out.print(table(headings, _replicas(known), "Unstored", "Committed", "Term"))
        for router, row in known.set.rows.items():
            if why := row["why_aside"]:
                out.print(Text(printable(f"router {router} set its store aside: {why}"), style="yellow"))

    ask(main)


@queue.command()
@name_argument
@json_option
@asking
def delete(name: str, machine: bool, ask: Ask) -> None:
    """Delete a queue, with all its messages.

    A queue that is declared again under this name is another queue, with another id. The next message to the address
    declares it again.

    \b
    Example: oncemesh queue delete queue/orders
    """

    async def main(management: Management) -> None:
        known = await queue_named(management, name)
        try:
            await _change(management, "DELETE", name, None, identity=known.id)
        except RefusedError as error:
            if error.status != NOT_FOUND:  # the queue was deleted, but the router died before it answered
                raise
        click.echo(printable_json(known.as_json()) if machine else f"queue {printable(name)} is deleted")

    ask(main)


@queue.command()
@name_argument
@json_option
@asking
def purge(name: str, machine: bool, ask: Ask) -> None:
    """Take all messages that no consumer has out of a queue.

    The queue stays, with its settings. Messages that come while the command works stay, too. A message that a consumer
    has is purged if the consumer gives it back.

    The command prints how many messages it took. If a router fails meanwhile, the command asks again; then it prints
    how many the last try took, which may be fewer.

    \b
    Examples:
      oncemesh queue purge queue/orders
      oncemesh queue purge queue/orders --json | jq .purged
    """

    async def main(management: Management) -> None:
        known = await queue_named(management, name)
        told = await _change(management, "PURGE", name, None, identity=known.id, position=known.last_position or 0)
        if machine:
            click.echo(printable_json({"name": known.name, "id": known.id, **told}))
        else:
            click.echo(f"queue {printable(name)}: {counted(told['purged'], 'message')} purged")

    ask(main)


@queue.command()
@name_argument
@click.option("--count", type=click.IntRange(1, MOST_SHOWN), default=10, show_default=True, help="How many messages.")
@click.option(
    "--from",
    "first",
    metavar="POSITION",
    type=click.IntRange(0, MOST_POSITION),
    default=0,
    help="Begin at this position.",
)
@json_option
@asking
def peek(name: str, count: int, first: int, machine: bool, ask: Ask) -> None:
    """Show the first messages in a queue, without taking them.

    Each message has a position: the first number of its line. A consumer may have a message already; its container is
    shown then. `failed` is how often a consumer had the message and failed. The command shows the first 4 KiB of a
    message.

    \b
    Examples:
      oncemesh queue peek queue/orders
      oncemesh queue peek queue/orders --count 100 --from 5242880
      oncemesh queue peek queue/orders --json | jq -r '.[].message.body'
    """

    async def main(management: Management) -> None:
        known = await queue_named(management, name)
        if known.leader is None:
            raise RunError(
                f"set {known.set.name} has no leader now, so nobody knows what is in queue {printable(name)}"
            )
        found: list[Mapping[str, Any]] = []
        while len(found) < count:
            asked = {"count": count - len(found), "from": found[-1]["position"] + 1 if found else first}
            named = {"type": DECLARED_QUEUE.managed, "name": name, "identity": known.id}
            told = await management.ask("PEEK", known.leader, **named, **asked)
            if not told["messages"]:
                break
            found += told["messages"]
        if machine:
            click.echo(printable_json([{**one, "message": _sections(one["message"])} for one in found], indent=1))
        else:
            click.echo("\n".join(map(_laid_out, found)) if found else "no messages")

    ask(main)


@queue.command()
@name_argument
@click.option("--count", type=click.IntRange(1), help="How many messages to look at; without it, all.")
@json_option
@asking
def retry(name: str, count: int | None, machine: bool, ask: Ask) -> None:
    """Give the dead letters in a queue back to the queues that they are from.

    NAME is the queue that has the dead letters. Each goes to the end of the queue that it is from. A message stays if a
    consumer has it, or if it is no dead letter of a queue. The command prints how many messages went, and how many of
    those that it has looked at stay. If a router fails meanwhile, repeat the command: a dead letter that went is gone
    from the queue.

    
    Examples:
      oncemesh queue retry queue/orders/dead
      oncemesh queue retry queue/orders/dead --count 10
    """

    async def main(management: Management) -> None:
        known = await queue_named(management, name)
        if known.leader is None:
            raise RunError(
                f"set {known.set.name} has no leader now, so nobody knows what is in queue {printable(name)}"
            )
        named = {"type": DECLARED_QUEUE.managed, "name": name, "identity": known.id}
        went, stayed, first = 0, 0, 0
        last = known.last_position if known.last_position is not None else -1
        while first is not None and first <= last and (count is None or went + stayed < count):
            left = {"count": count - went - stayed} if count is not None else {}
            told = await management.ask("RETRY", known.leader, **named, **{"from": first}, **left)
            went, stayed, first = went + told["went"], stayed + told["stayed"], told["next"]
        if machine:
            click.echo(printable_json({"name": known.name, "id": known.id, "went": went, "stayed": stayed}))
        else:
            what = f"{counted(went, 'message')} went back, {stayed} stayed"
            click.echo(f"queue {printable(name)}: {what}")

    ask(main)


def _sections(message: bytes) -> Any:
    """The sections of a message, in the form that `subscribe --format json` prints. None if the message is
    malformed."""
    try:
        sections = json.loads(as_json(b"", message))
    except AmqpError:
        return None
    del sections["key"]
    return sections


def _laid_out(one: Mapping[str, Any]) -> str:
    head = f"{one['position']}: {format_size(one['size'])}"
    head += ", shortened" if len(one["message"]) < one["size"] else ""
    head += f", failed {one['failed']} times" if one["failed"] else ""
    head += f", at consumer {one['consumer']}" if one["consumer"] is not None else ""
    try:
        return as_text(head.encode(), one["message"]).decode().rstrip("\n")
    except AmqpError:
        return printable(f"{head}, cannot be read as an AMQP message")


async def _change(management: Management, operation: str, name: str, body: Any, **named: Any) -> Any:
    return await management.ask(operation, None, body, type=DECLARED_QUEUE.managed, name=name, **named)


def _body(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request, with these settings. A setting that is missing or `none` is left out."""
    return {one.managed_name: value for one in SETTINGS if (value := settings.get(one.name, NONE)) != NONE}


def _check(settings: Mapping[str, Any]) -> None:
    """Raises click.UsageError if some of the settings contradict each other."""
    given = QueueSettings.of({name: value for name, value in settings.items() if value != NONE})
    if given.conflict:
        raise click.UsageError(given.conflict)


def _tell(row: Mapping[str, Any], what: str, *, machine: bool) -> None:
    said = {one.name: value for one in SETTINGS if (value := row[one.managed_name]) is not None}
    settings = QueueSettings.of(said)
    if machine:
        about = {"name": row["name"], "id": row["identity"], "set": row["set"], "settings": settings.values()}
        click.echo(printable_json(about))
    else:
        click.echo(printable(f"queue {row['name']} {what} in set {row['set']}: {settings}"))


def _cells(known: KnownQueue) -> list[str]:
    counts = [str(known.messages), format_size(known.bytes), _oldest(known), str(known.consumers)]
    return [known.name, known.set.name, known.leader or "none", *counts, str(known.settings)]


def _oldest(known: KnownQueue) -> str:
    """How old the oldest message is, as a text. The text is empty if the queue is empty, or if the age is not known."""
    return format_duration(known.oldest_s) if known.messages and known.oldest_s is not None else ""


def _figures(known: KnownQueue) -> Iterable[str]:
    what = f"{counted(known.messages, 'message')}, {format_size(known.bytes)}"
    what += f"; {known.reserved} of them reserved for consumers"
    what += f", {known.paused} paused after a failure" if known.paused else ""
    what += f", {known.scheduled} scheduled for later" if known.scheduled else ""
    oldest = _oldest(known)
    yield f"{what}; the oldest is {oldest} old or older" if oldest else what
    if known.outbox:
        yield f"{counted(known.outbox, 'message')} in the outbox: the address for dead letters has not taken them yet"
    consumers = counted(known.consumers, "consumer")
    if known.enqueued is None:
        yield consumers
    else:
        counts = f"{known.enqueued} came, {known.dequeued} left, {known.given_back} were given back"
        counts += f", {known.purged} were purged, {known.expired} expired, {known.dead} were dead letters"
        yield f"{consumers}; since router {known.leader} leads, {counts}"


def _replicas(known: KnownQueue) -> Iterable[list[str]]:
    best = known.set.best
    for router, row in known.set.rows.items():
        behind, copied = best["behind"].get(router), best["copied"].get(router)
        may_stop = "yes" if router in best["may_stop"] or router not in best["voters"] else "no"
        yield [
            router,
            row["role"],
            str(row["term"]),
            str(row["commit"]),
            str(row["applied"]),
            str(behind) if behind is not None else "",
            f"{copied}%" if copied is not None else "",
            format_size(row["unstored_bytes"]),
            may_stop if known.leader else "",
        ]


for command in (sets, replicas, voters, move, replace, begin, recover):
    queue.add_command(command)
