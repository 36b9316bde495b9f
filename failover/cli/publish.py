"""The command `oncemesh publish`."""

import json
import sys
from typing import IO, Any, Final

import click
import trio

from failover.cli.account import Account, Bar
from failover.cli.clients import (
    ClientOptions,
    Target,
    address_argument,
    attached,
    kept,
    read_rate,
    read_size,
    target_options,
    tell_of_others,
    teller,
)
from failover.cli.source import Limit, Source, source_of
from failover.cli.waiting import tell_who_is_awaited
from failover.client import Handle, Publisher
from router.cli.base import console, until_signal
from router.mesh.errors import RunError
from router.mesh.quantities import parse_duration
from router.mesh.rundir import find_run_dir

AT_ONCE: Final = 1000
"""The highest number of deliveries whose outcome the command awaits at a time. The credit of the router may be
lower."""
ASK_S: Final = 0.1
"""The seconds between two counts of the subscribers, with `--wait-for-subscribers`."""
LONGEST_TTL_MS: Final = 2**32 - 1


def read_ttl(context: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Read a time to live, and return it in milliseconds."""
    try:
        ttl_ms = round(parse_duration(value) * 1000) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if ttl_ms is not None and ttl_ms > LONGEST_TTL_MS:
        raise click.BadParameter(f"{value} is too long, expected at most {LONGEST_TTL_MS} ms (49.7 days)")
    if ttl_ms == 0:  # in AMQP, 0 means that the message never expires
        raise click.BadParameter(f"{value} is too short, expected at least 1 ms")
    return ttl_ms


def read_properties(context: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise click.BadParameter(f"{name!r} is not a property, expected NAME=VALUE")
    return {name: value for name, _, value in pairs}


@click.command()
@address_argument
@click.option("--body", metavar="TEXT", help="Body of each message.")
@click.option(
    "--body-file", type=click.File("rb"), help="The whole file is the body of each message; - is standard input."
)
@click.option(
    "--from",
    "lines",
    type=click.File("rb", lazy=True),
    help="Each line of this file is a message; - is standard input.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["raw", "json"]),
    help="Format of a line. raw: the body. json: a message as `subscribe --format json` prints it, such"
    ' as {"body": "text", "properties": {"subject": "s"}}.  [default: raw]',
)
@click.option(
    "--count",
    type=click.IntRange(0),
    help="Number of messages: copies of the body, or numbered bodies if none is given.",
)
@click.option("--size", callback=read_size, metavar="SIZE", help="Size of each numbered body.  [default: 100B]")
@click.option(
    "--subject",
    metavar="TEXT",
    help="Subject of every message; a JSON line's own value wins, also over the options below.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    callback=read_properties,
    metavar="NAME=VALUE",
    help="An application property with a text value; may be repeated.",
)
@click.option(
    "--ttl",
    callback=read_ttl,
    metavar="DURATION",
    help="Time to live, such as 30s. The router rejects a message that no subscriber has got by then.",
)
@click.option(
    "--priority", type=click.IntRange(0, 255), help="Priority for the subscriber; routers pass it on and ignore it."
)
@click.option("--rate", type=float, callback=read_rate, help="Messages per second. Default: no limit.")
@click.option(
    "--wait-for-subscribers",
    "wanted",
    type=click.IntRange(1),
    metavar="N",
    help="Begin when N subscribers are attached to the address: a message without a subscriber is accepted and gone.",
)
@click.option("--json", "machine", is_flag=True, help="At the end, print the outcomes as one JSON object.")
@target_options
def publish(
    address: str,
    body: str | None,
    body_file: IO[bytes] | None,
    lines: IO[bytes] | None,
    form: str | None,
    count: int | None,
    size: int | None,
    subject: str | None,
    properties: dict[str, str],
    ttl: int | None,
    priority: int | None,
    rate: float | None,
    wanted: int | None,
    machine: bool,
    options: ClientOptions,
) -> None:
    """Publish messages; exit status 0 only if all were accepted.

    The body comes from --body or --body-file. Without either, each line of --from or of standard input is a message.
    With only --count or --size, the command makes up numbered bodies.

    If its router fails, the command continues at another router, without loss or repetition; it tries for up to a
    minute. With --state, it first sends the messages of an earlier run that have no outcome yet; --count 0 does only
    this.

    \b
    Examples:
      oncemesh publish topic/news --body hello --subject greeting
      tail -f app.log | oncemesh publish topic/logs
      zcat orders.gz | oncemesh publish topic/orders --from - --format json --json
      oncemesh publish topic/news --count 1000 --wait-for-subscribers 1
      oncemesh publish topic/prices --body 17.5 --ttl 5s
    """
    name = options.named("publisher")
    target = options.target(name)
    limit = Limit.of(None if options.urls else find_run_dir(options.run_dir))
    given = sections(subject, properties, ttl, priority)
    source = source_of(given, limit, body=body, body_file=body_file, lines=lines, form=form, count=count, size=size)
    account = attached(_publish, target, name, address, source, rate, wanted)
    if machine:
        click.echo(json.dumps(account.as_json()))
    if account.error is not None:
        raise account.error
    if not account.is_well:
        raise click.exceptions.Exit(1)


def sections(
    subject: str | None, properties: dict[str, str], ttl_ms: int | None, priority: int | None
) -> dict[str, dict[str, Any]]:
    """The sections, by name, that all messages have besides their bodies. Empty fields and sections are left out."""
    given: dict[str, dict[str, Any]] = {
        "header": {"priority": priority, "ttl": ttl_ms},
        "properties": {"subject": subject},
        "application-properties": properties,
    }
    said = {name: {field: value for field, value in of.items() if value is not None} for name, of in given.items()}
    return {name: fields for name, fields in said.items() if fields}


async def _publish(
    target: Target, name: str, address: str, source: Source, rate: float | None = None, wanted: int | None = None
) -> Account:

    out = console(stderr=True)
    account = Account(address, source.count, keeps=target.state is not None)
    with Bar(out, address, source.count) as bar, kept(target) as store:
        events = teller(out, name, first=not bar.shown)
        publisher = Publisher(target.urls, address, events=events, **target.attaching(name, "publish", store))
        tell_of_others(out, store, "publisher", publisher.identity)
        try:
            async with until_signal() as scope, publisher, trio.open_nursery() as nursery:
                nursery.start_soon(
                    tell_who_is_awaited,
                    str(publisher.identity),
                    target.routers,
                    target.status,
                    lambda: account.progress,
                    bar.tell,
                )
                await _send_all(publisher, source, account, bar, rate, wanted)
                nursery.cancel_scope.cancel()
            account.interrupted = scope.cancelled_caught
        finally:
            account.alone = publisher.alone
            if account.begun or not sys.exception():  # otherwise nothing was sent, so click prints the error
                bar.stop()
                out.print(account.tally(), soft_wrap=True)
                if account.kept:
                    out.print(f"{account.kept} kept in {target.state} for the next run", soft_wrap=True)
    return account


async def _send_all(
    publisher: Publisher, source: Source, account: Account, bar: Bar, rate: float | None, wanted: int | None
) -> None:
    """Send every message, and count the outcomes in the order of sending.

    If the source fails, count the outcomes of the messages before the failure, and put the error into the account.
    """

    to_await, awaited = trio.open_memory_channel[Handle](AT_ONCE)

    async def tell() -> None:
        async for delivery in awaited:
            await delivery.outcome()
            account.end(delivery)
            bar.advance()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell)
        async with to_await:
            account.expect(len(publisher.resumed))
            for delivery in publisher.resumed:
                account.begin(delivery)
                await to_await.send(delivery)
            bar.start(account.count)
            if wanted is not None:
                await _await_subscribers(publisher, wanted, bar)
            started, number = trio.current_time(), 0
            try:
                async for message in source.messages:
                    if rate is not None:
                        await trio.sleep_until(started + number / rate)
                    delivery = await publisher.send_message(message)
                    account.begin(delivery)
                    await to_await.send(delivery)
                    number += 1
            except RunError as error:  # the source has failed
                account.error = error


async def _await_subscribers(publisher: Publisher, wanted: int, bar: Bar) -> None:
    seen = None
    while (now := await publisher.subscribers()) < wanted:
        if now != seen:
            bar.say(f"waiting for subscribers, {now} of {wanted}")
            seen = now
        await trio.sleep(ASK_S)
    bar.say("")
