"""The commands that are clients: publish and subscribe.

Both attach to a mesh by its run directory, or to any router by `--url`. With a run directory they keep a
delivery log there, so that the audit judges the mesh by what its clients saw. When their router is lost they go on at
another; with a state file they also go on where an earlier run of theirs ended, however it did.
"""

import base64
import json
import math
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from failover.printable import printable
from router.cli_base import console, run, run_dir_option
from router.cli_mesh import until_signal
from router.quantities import parse_size
from router.reading import expected
from router.rundir import RunDirectory, RunError, find_run_dir
from router.topology_parts import MOST_MESSAGE

if TYPE_CHECKING:
    from failover.client import Delivery, Event, Publisher, SqliteStore

Result = TypeVar("Result")
Command = TypeVar("Command", bound=Callable[..., Any])

# A client's name becomes the name of its folder.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")

# Deliveries whose outcome is awaited at the same time; a router's credit may be lower.
AT_ONCE = 1000


@attrs.frozen
class Target:
    """Where a client attaches: routers in the order in which they are tried; where it logs and keeps its state."""

    urls: tuple[str, ...]
    log: Path | None
    state: Path | None = None


def read_size(context: click.Context, param: click.Parameter, value: str) -> int:
    try:
        return parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_text(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A name in AMQP."""
    if value is not None and (not value or not value.isprintable()):
        raise click.BadParameter(f"{value!r} is no name, expected at least one character, and printable ones only")
    return value


def read_rate(context: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise click.BadParameter(f"{value} is not a rate, expected a number above 0")
    return value


def read_urls(context: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    from failover.client.routers import parse_url

    try:
        for url in value:
            parse_url(url)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


address_argument = click.argument("address", callback=read_text)


def target_options(command: Command) -> Command:
    """What tells a client where to attach and who it is."""
    for option in (
        click.option(
            "--state",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Keep what is unsettled in this file, and resume what an earlier run left in it; needs --id.",
        ),
        click.option("--id", "name", callback=read_text, help="The client's container-id. Default: a new one."),
        run_dir_option,
        click.option("--router", help="The router to attach to first. Default: the first that runs."),
        click.option(
            "--url",
            "urls",
            multiple=True,
            callback=read_urls,
            help="A router to try, amqp://host:port; may be repeated.",
        ),
    ):
        command = option(command)
    return command


def named(name: str | None, role: str, state: Path | None) -> str:
    if name is None and state is not None:
        raise click.UsageError("--state needs --id: a link is resumed by the same client only")
    return name or f"{role}-{secrets.token_hex(4)}"


def find_target(
    run_dir: Path | None, urls: Sequence[str], router: str | None, name: str, state: Path | None = None
) -> Target:
    if urls:
        return Target(tuple(urls), None, state)
    directory = find_run_dir(run_dir)
    entries = directory.read().routers
    if router is not None and router not in entries:
        raise RunError(f'there is no router "{router}" in this mesh, {expected(router, entries)}')
    running = directory.running()
    first = [router] if router is not None else [entry for entry in entries if entry in running]
    order = dict.fromkeys([*first, *entries])
    return Target(tuple(f"amqp://{entries[entry].amqp}" for entry in order), client_log(directory, name), state)


def check_size(size: int, directory: RunDirectory | None) -> None:
    """No message is made that the mesh, as far as it is known, would refuse."""
    from router.amqp.message import data_message

    most = directory.topology().limits.max_message if directory is not None else MOST_MESSAGE
    if size + len(data_message(b"")) > most:
        limit = f"limits.max_message of this mesh, {most} bytes" if directory is not None else f"{most} bytes"
        raise RunError(f"messages of {size} bytes are too large, expected at most {limit}, with their header")


def client_log(directory: RunDirectory, name: str) -> Path:
    if not NAME.fullmatch(name):
        raise RunError(f'"{name}" cannot name a client, expected letters, digits, dots, - and _')
    return directory.path / "clients" / name / "log"


@click.command()
@address_argument
@click.option("--count", type=click.IntRange(0), default=1, show_default=True, help="How many new messages.")
@click.option(
    "--size",
    callback=read_size,
    metavar="SIZE",
    default="100B",
    show_default=True,
    help="Bytes of each, such as 100B or 1MiB.",
)
@click.option("--rate", type=float, callback=read_rate, help="Messages per second. Default: no limit.")
@target_options
def publish(
    address: str,
    count: int,
    size: int,
    rate: float | None,
    urls: tuple[str, ...],
    router: str | None,
    run_dir: Path | None,
    name: str | None,
    state: Path | None,
) -> None:
    """Publish messages; exit status 0 only if all were accepted.

    When its router is lost it goes on at another, and looks for one for up to a minute: nothing is lost or comes twice.
    With --state, what an earlier run left without an outcome comes first; --count 0 does only that.

    \b
    Example: oncemesh publish topic/news --count 1000 --size 1KiB
    """
    name = named(name, "publisher", state)
    target = find_target(run_dir, urls, router, name, state)
    check_size(size, None if urls else find_run_dir(run_dir))
    outcomes = attached(_publish, target, name, address, count, size, rate)
    if outcomes.total() != outcomes["accepted"]:
        raise click.exceptions.Exit(1)


async def _publish(target: Target, name: str, address: str, count: int, size: int, rate: float | None) -> Counter[str]:
    from failover.client import Publisher

    outcomes: Counter[str] = Counter()
    out = console(stderr=True)
    bodies = (numbered(number, size) for number in range(count))
    with progress(out) as bars, kept(target) as store:
        bar = bars.add_task(address, total=count)

        def told(outcome: str) -> None:
            outcomes[outcome] += 1
            bars.advance(bar)

        publisher = Publisher(
            target.urls,
            address,
            container=name,
            link="publish",
            log=target.log,
            store=store,
            events=teller(out, name, first=not out.is_terminal),  # a terminal has the progress bar
        )
        try:
            async with until_signal(), publisher:
                count += len(publisher.resumed)
                bars.update(bar, total=count)
                for delivery in publisher.resumed:
                    told(await delivery.outcome())
                await send_all(publisher, bodies, told, rate)
        except BaseException:
            if outcomes:  # else the error says all there is
                out.print(tally(outcomes, count))
            raise
    out.print(tally(outcomes, count))
    return outcomes


def tally(outcomes: Counter[str], count: int) -> str:
    """What became of so many messages; those that nobody was told of are counted as unknown."""
    if outcomes.total() < count:
        outcomes["unknown"] += count - outcomes.total()
    return ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items()) or "nothing to publish"


async def send_all(
    publisher: "Publisher", bodies: Iterable[bytes], told: Callable[[str], None], rate: float | None = None
) -> None:
    """Sends every body and tells its outcome, in the order of sending."""
    from failover.client import Handle

    to_await, awaited = trio.open_memory_channel[Handle](AT_ONCE)

    async def tell() -> None:
        async for handle in awaited:
            told(await handle.outcome())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell)
        started = trio.current_time()
        async with to_await:
            for number, body in enumerate(bodies):
                if rate is not None:
                    await trio.sleep_until(started + number / rate)
                await to_await.send(await publisher.send(body))


@click.command()
@address_argument
@click.option("--count", type=click.IntRange(1), help="End after so many messages. Default: go on until ctrl-C.")
@click.option("--json", "machine", is_flag=True, help='Lines of JSON: {"key", "body"}, "base64" if it is not text.')
@target_options
def subscribe(
    address: str,
    count: int | None,
    machine: bool,
    urls: tuple[str, ...],
    router: str | None,
    run_dir: Path | None,
    name: str | None,
    state: Path | None,
) -> None:
    """Print the bodies of messages as they come, and accept each.

    When its router is lost it goes on at another, and looks for one for up to a minute: nothing is lost or comes twice.
    With --state, the subscription stays when the command ends, for a minute, and the next run takes it up. Publishers
    wait for it that long, and also for a command that was killed without --state. A message is accepted after it was
    printed: the last line of a command that was killed may come again in the next run.

    \b
    Example: oncemesh subscribe topic/news --count 1000 --router c
    """
    name = named(name, "subscriber", state)
    show = json_line if machine else text_line
    taken = attached(_subscribe, find_target(run_dir, urls, router, name, state), name, address, count, show)
    if count is not None and taken < count:
        raise click.exceptions.Exit(1)


async def _subscribe(
    target: Target, name: str, address: str, count: int | None, show: Callable[[bytes, bytes], str]
) -> int:
    from failover.client import Subscriber

    taken = 0
    with kept(target) as store:
        subscriber = Subscriber(
            target.urls,
            address,
            container=name,
            link="subscribe",
            log=target.log,
            store=store,
            events=teller(console(stderr=True), name),
        )
        async with until_signal(), subscriber:
            async for delivery in subscriber:
                click.echo(show(delivery.key, shown_body(delivery)))
                await delivery.accept()
                taken += 1
                if taken == count:
                    break
    return taken


@contextmanager
def kept(target: Target) -> Iterator["SqliteStore | None"]:
    """The client's state file, if it has one."""
    from failover.client import SqliteStore

    if target.state is None:
        yield None
        return
    with SqliteStore(target.state) as store:
        yield store


def teller(out: Console, name: str, *, first: bool = True) -> Callable[["Event"], None]:
    """Tells of routers found and lost; of the first one only if asked to."""
    from failover.client import Abandoned, Connected, Event, Lost

    told = first

    def tell(event: Event) -> None:
        nonlocal told
        match event:
            case Lost(reason):
                told = True
                out.print(f"attaching again: {printable(reason)}", soft_wrap=True)
            case Connected(url, router) if told:
                out.print(f"attached to {printable(router or url)} as {name}", soft_wrap=True)
            case Abandoned(in_doubt):
                out.print(f"{in_doubt} in doubt: this router does not know the link's former life")

    return tell


def shown_body(delivery: "Delivery") -> bytes:
    """The whole message if its body is neither data nor text: who publishes such must not stop us."""
    from router.amqp.errors import PeerError

    try:
        return delivery.body
    except PeerError:
        return delivery.message


def text_line(key: bytes, body: bytes) -> str:
    return printable(body.decode(errors="backslashreplace"))


def json_line(key: bytes, body: bytes) -> str:
    line = {"key": key.decode(errors="backslashreplace")}
    try:
        line["body"] = body.decode()
    except UnicodeDecodeError:
        line["base64"] = base64.b64encode(body).decode()
    return json.dumps(line)


def numbered(number: int, size: int) -> bytes:
    """A body of `size` bytes that starts with its number, as far as that fits."""
    return (b"%d " % number).ljust(size, b".")[:size]


def progress(out: Console) -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=out, disable=not out.is_terminal)


def attached(main: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
    """Runs a client; that its router is not there or refuses it is no bug."""
    try:
        return run(main, *arguments)
    except BrokenPipeError:
        raise  # nobody reads our output any more: click ends us quietly
    except (ConnectionError, ValueError) as error:
        raise RunError(printable(str(error))) from None


COMMANDS = (publish, subscribe)
