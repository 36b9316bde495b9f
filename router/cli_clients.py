"""The commands that are clients: publish and subscribe.

Both attach to a mesh by its run directory, or to any router by `--url`. With a run directory they keep a
delivery log there, so that the audit judges the mesh by what its clients saw.
"""

import base64
import json
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from router.cli_base import console, run, run_dir_option
from router.cli_mesh import until_signal
from router.quantities import parse_size
from router.rundir import RunDirectory, RunError, find_run_dir

if TYPE_CHECKING:
    from failover.client import Publisher

Result = TypeVar("Result")
Command = TypeVar("Command", bound=Callable[..., Any])

# A client's name becomes the name of its folder.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")

# Deliveries whose outcome is awaited at the same time; a router's credit may be lower.
AT_ONCE = 1000


@attrs.frozen
class Target:
    """Where a client attaches: routers in the order in which they are tried, and where it logs."""

    urls: tuple[str, ...]
    log: Path | None


def read_size(context: click.Context, param: click.Parameter, value: str) -> int:
    try:
        return parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def target_options(command: Command) -> Command:
    """What tells a client where to attach and who it is."""
    for option in (
        click.option("--id", "name", help="The client's container-id. Default: a new one."),
        run_dir_option,
        click.option("--router", help="The router to attach to. Default: the first that runs."),
        click.option("--url", "urls", multiple=True, help="A router, amqp://host:port; may be repeated."),
    ):
        command = option(command)
    return command


def find_target(run_dir: Path | None, urls: Sequence[str], router: str | None, name: str) -> Target:
    if urls:
        return Target(tuple(urls), None)
    directory = find_run_dir(run_dir)
    entries = directory.read().routers
    if router is not None and router not in entries:
        raise RunError(f'there is no router "{router}" in this mesh, expected {", ".join(entries)}')
    running = directory.running()
    first = [router] if router is not None else [entry for entry in entries if entry in running]
    order = dict.fromkeys([*first, *entries])
    return Target(tuple(f"amqp://{entries[entry].amqp}" for entry in order), client_log(directory, name))


def client_log(directory: RunDirectory, name: str) -> Path:
    if not NAME.fullmatch(name):
        raise RunError(f'"{name}" cannot name a client, expected letters, digits, dots, - and _')
    return directory.path / "clients" / name / "log"


@click.command()
@click.argument("address")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How many messages.")
@click.option(
    "--size",
    callback=read_size,
    metavar="SIZE",
    default="100B",
    show_default=True,
    help="Bytes of each, such as 100B or 1MiB.",
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Messages per second. Default: no limit.")
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
) -> None:
    """Publish messages; the exit status is 0 only if all were accepted.

    \b
    Example: oncemesh publish topic/news --count 1000 --size 1KiB
    """
    name = name or f"publisher-{secrets.token_hex(4)}"
    outcomes = attached(_publish, find_target(run_dir, urls, router, name), name, address, count, size, rate)
    if outcomes != Counter(accepted=count):
        raise click.exceptions.Exit(1)


async def _publish(target: Target, name: str, address: str, count: int, size: int, rate: float | None) -> Counter[str]:
    from failover.client import Publisher

    outcomes: Counter[str] = Counter()
    out = console(stderr=True)
    bodies = (numbered(number, size) for number in range(count))
    publisher = Publisher(target.urls, address, container=name, link="publish", log=target.log)
    with progress(out) as bars:
        bar = bars.add_task(address, total=count)

        def told(outcome: str) -> None:
            outcomes[outcome] += 1
            bars.advance(bar)

        async with until_signal(), publisher:
            await send_all(publisher, bodies, told, rate)
    unknown = {"unknown": count - outcomes.total()} if outcomes.total() < count else {}
    out.print(", ".join(f"{number} {outcome}" for outcome, number in (outcomes | unknown).items()))
    return outcomes


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
@click.argument("address")
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
) -> None:
    """Print the bodies of messages as they come, and accept each.

    \b
    Example: oncemesh subscribe topic/news --count 1000 --router c
    """
    name = name or f"subscriber-{secrets.token_hex(4)}"
    show = json_line if machine else text_line
    taken = attached(_subscribe, find_target(run_dir, urls, router, name), name, address, count, show)
    if count is not None and taken < count:
        raise click.exceptions.Exit(1)


async def _subscribe(
    target: Target, name: str, address: str, count: int | None, show: Callable[[bytes, bytes], str]
) -> int:
    from failover.client import Subscriber

    taken = 0
    subscriber = Subscriber(target.urls, address, container=name, link="subscribe", log=target.log)
    async with until_signal(), subscriber:
        async for delivery in subscriber:
            click.echo(show(delivery.key, delivery.body))
            await delivery.accept()
            taken += 1
            if taken == count:
                break
    return taken


def text_line(key: bytes, body: bytes) -> str:
    return body.decode(errors="backslashreplace")


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
        raise RunError(str(error)) from None


COMMANDS = (publish, subscribe)
