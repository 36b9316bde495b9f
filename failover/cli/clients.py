"""The common part of the commands `publish` and `subscribe`.

Both attach to a mesh by its run directory, or to any router by `--url`. With a run directory, they write a delivery log
there, so that the audit can compare this log with the logs of routers. If they lose their router, they go to another
one. With a state file, they also continue where an earlier run has ended, even if that run was killed.
"""

import math
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import attrs
import click
from rich.console import Console

from failover.client import Abandoned, Connected, Event, Lost, Searching, SqliteStore
from failover.client.attachment.routers import parse_url
from failover.client.state.store import Role
from failover.client.status import fetch_status
from router.amqp.sasl.credentials import NOBODY, Credentials
from router.cli.access.login import login_options
from router.cli.base import run, run_dir_option
from router.mesh.config import is_loopback
from router.mesh.errors import RunError
from router.mesh.quantities import Address, parse_size
from router.mesh.reading import expected
from router.mesh.rundir import RunDirectory, find_run_dir
from router.security.operator import operator_of
from router.text.printable import printable
from topic.identity import LinkIdentity

Result = TypeVar("Result")

LONGEST_NAME = 128
# The name of a client has to be a possible name of a folder, because the client's folder has this name.
NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}")


@attrs.frozen
class ClientOptions:
    """The options that name a client's routers, its own name, its state file and its credentials."""

    urls: tuple[str, ...]
    router: str | None
    run_dir: Path | None
    name: str | None
    state: Path | None
    credentials: Credentials

    def named(self, role: str) -> str:
        """The name of the client. If the user gave no name, this method makes a new one."""
        if self.name is None and self.state is not None:
            raise click.UsageError("--state needs --id: only the same client can resume a link")
        return self.name or f"{role}-{secrets.token_hex(4)}"

    def target(self, name: str) -> "Target":
        return find_target(self.run_dir, self.urls, self.router, name, self.state, self.credentials)


class Attaching(TypedDict):
    """The arguments that a publisher and a subscriber have in common."""

    container: str
    link: str
    log: Path | None
    store: SqliteStore | None
    credentials: Credentials


@attrs.frozen
class Target:
    """Where a client attaches: the routers in the order in which the client tries them, and the places of its log and
    state."""

    urls: tuple[str, ...]
    log: Path | None
    state: Path | None = None
    credentials: Credentials = NOBODY

    @property
    def routers(self) -> list[str]:
        """The host and port of each URL of a router, as "host:port"."""

        return [str(Address(at.host, at.port)) for at in map(parse_url, self.urls)]

    def attaching(self, name: str, link: str, store: SqliteStore | None) -> Attaching:
        return {
            "container": name,
            "link": link,
            "log": self.log,
            "store": store,
            "credentials": self.credentials,
        }

    async def status(self, host: str, port: int, timeout: float) -> dict[str, Any]:
        """Ask a router for its status with the credentials of this client."""

        return await fetch_status(host, port, timeout, self.credentials, parse_url(self.urls[0]).scheme)


def read_size(context: click.Context, param: click.Parameter, value: str | None) -> int | None:
    try:
        return parse_size(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_text(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check that AMQP allows this text as a name."""
    if value is not None and (not value or not value.isprintable()):
        raise click.BadParameter(f"{value!r} is not a valid name, expected one or more printable characters")
    return value


def read_rate(context: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise click.BadParameter(f"{value} is not a rate, expected a number above 0")
    return value


def read_urls(context: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:

    try:
        for url in value:
            parse_url(url)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


address_argument = click.argument("address", callback=read_text)


def target_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add to a command the options that name the routers and the client. The command gets them as `options`."""

    @wraps(command)
    def asking(
        urls: tuple[str, ...],
        router: str | None,
        run_dir: Path | None,
        name: str | None,
        state: Path | None,
        credentials: Credentials,
        **others: Any,
    ) -> None:
        command(options=ClientOptions(urls, router, run_dir, name, state, credentials), **others)

    wrapped = login_options(asking)
    for option in (
        click.option(
            "--state",
            type=click.Path(dir_okay=False, path_type=Path),
            help="File for unsettled messages; a later run with the same --id and file resumes them.",
        ),
        click.option("--id", "name", callback=read_text, help="Container-id of the client. Default: a new one."),
        run_dir_option,
        click.option("--router", help="The router to connect to first. Default: the first that runs."),
        click.option(
            "--url",
            "urls",
            multiple=True,
            callback=read_urls,
            help="A router to connect to, amqp://host:port, or amqps:// for TLS; may be repeated.",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped


def find_target(
    run_dir: Path | None,
    urls: Sequence[str],
    router: str | None,
    name: str,
    state: Path | None = None,
    credentials: Credentials = NOBODY,
) -> Target:
    """Find out where the client attaches. A client that has a run directory, but no credentials in its options, uses
    the credentials of the mesh's operator."""
    if urls:
        for option, value in (("--run-dir", run_dir), ("--router", router)):
            if value is not None:
                raise click.UsageError(f"--url and {option} exclude each other: use --url or {option}, not both")
        return Target(tuple(urls), None, state, credentials)
    directory = find_run_dir(run_dir)
    entries = directory.read().routers
    if router is not None and router not in entries:
        raise RunError(f'there is no router "{router}" in this mesh, {expected(router, entries)}')
    running = directory.running()
    if not running and all(is_loopback(Address.parse(entry.amqp).host) for entry in entries.values()):
        raise RunError(f"{directory.path}: no router of this mesh is running, start them with oncemesh start")
    first = [router] if router is not None else [entry for entry in entries if entry in running]
    order = dict.fromkeys([*first, *entries])
    scheme, credentials = operator_of(directory, credentials)
    urls = tuple(f"{scheme}://{Address.parse(entries[entry].amqp).here}" for entry in order)
    return Target(urls, client_log(directory, name), state, credentials)


def client_log(directory: RunDirectory, name: str) -> Path:
    if not NAME.fullmatch(name):
        shown = name if len(name) <= LONGEST_NAME else f"{name[:32]}…"
        which = f"expected letters, digits, dots, - and _, at most {LONGEST_NAME} characters"
        raise RunError(f'"{shown}" is not a valid client name, {which}')
    return directory.path / "clients" / name / "log"


@contextmanager
def kept(target: Target) -> Iterator[SqliteStore | None]:
    """The state file of the client. None if it has none."""

    if target.state is None:
        yield None
        return
    with SqliteStore(target.state) as store:
        yield store


def tell_of_others(out: Console, store: SqliteStore | None, role: Role, identity: LinkIdentity) -> None:
    """Print the other links that the state file has, which this run does not continue. A user who has mistyped --id or
    the address sees the mistake."""
    for other, link, unsettled in store.others(role, identity) if store is not None else ():
        whose = f" of user {link.user}" if link.user != identity.user else ""
        kept_too = f"{other} {printable(f'{link}{whose}')}, {unsettled} unsettled"
        out.print(f"the state file also has another link, which this run does not change: {kept_too}", soft_wrap=True)


def teller(out: Console, name: str, *, first: bool = True) -> Callable[[Event], None]:
    """Return a function that prints each router that the client attaches to or loses. It prints the first attach only
    if `first` is set."""

    told = first

    def tell(event: Event) -> None:
        nonlocal told
        match event:
            case Lost(reason):
                told = True
                out.print(f"{name} reconnects: {printable(reason)}", soft_wrap=True)
            case Searching(reason, left):
                out.print(f"{printable(reason)}; {name} keeps trying for {left:.0f} s", soft_wrap=True)
            case Connected(url, router) if told:
                out.print(f"attached to {printable(router or url)} as {name}", soft_wrap=True)
            case Abandoned(in_doubt):
                out.print(f"{in_doubt} messages stay in doubt, because the mesh has forgotten this link")

    return tell


def attached(main: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
    """Run a client, and return its result. Raises RunError if no router answers, or if a router refuses the client."""
    try:
        return run(main, *arguments)
    except BrokenPipeError:
        raise  # standard output is closed, and click ends the command quietly
    except (ConnectionError, ValueError) as error:
        raise RunError(printable(str(error))) from None
