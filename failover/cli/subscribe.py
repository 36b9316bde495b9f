"""The commands `oncemesh subscribe` and `oncemesh unsubscribe`."""

from collections.abc import Mapping
from typing import Final

import click
import trio

from failover.cli.clients import (
    ClientOptions,
    Target,
    address_argument,
    attached,
    kept,
    target_options,
    tell_of_others,
    teller,
)
from failover.cli.json_message import Show, as_json, as_lines, as_raw, as_text
from failover.client import Subscriber
from router.amqp.format.errors import AmqpError
from router.cli.base import console, standard_output, until_signal
from router.mesh.errors import RunError
from router.mesh.quantities import format_duration
from router.text.printable import printable

LINK: Final = "subscribe"
"""The name of the link of each subscription that this command makes."""
TOGETHER: Final = 100
"""The highest number of messages that the command accepts in one commit of the state file."""
TOGETHER_S: Final = 0.05
"""The seconds after which the command commits the messages that it has printed, however few they are. Printing may be
slow, and it blocks the client's other work."""
FORMATS: Final[Mapping[str, Show]] = {"raw": as_raw, "pretty": as_text, "json": as_json}


@click.command()
@address_argument
@click.option("--count", type=click.IntRange(1), help="End after this number of messages. Default: run until Ctrl-C.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="raw",
    show_default=True,
    help="raw: the body and a newline; on a terminal, without control characters. pretty: the key and all sections,"
    " for people. json: the same, one message a line, for programs.",
)
@click.option(
    "--filter",
    "selector",
    metavar="SELECTOR",
    help="Get only the messages that match this JMS selector, a condition on their properties. For a message that"
    " does not match, publishers do not wait for this subscriber.",
)
@target_options
def subscribe(address: str, count: int | None, form: str, selector: str | None, options: ClientOptions) -> None:
    """Print each message that arrives, then accept it.

    If its router fails, the command continues at another router, without loss or repetition; it tries for up to a
    minute. With --state, the subscription outlives the command for a minute, and the next run continues it. Publishers
    wait for it during this minute; they also wait this long for a command without --state that was killed. The command
    accepts messages after it has printed them: after a kill, the next run may print up to a hundred messages again.

    \b
    Examples:
      oncemesh subscribe topic/news --count 1000 --router c
      oncemesh subscribe topic/news --format json | jq .body
      oncemesh subscribe topic/news --filter "colour = 'red' AND size > 3"
    """
    name = options.named("subscriber")
    show: Show = FORMATS[form]
    out = standard_output()
    if form == "raw" and out.isatty():
        show = as_lines
    target = options.target(name)
    taken = attached(_subscribe, target, name, address, count, show, selector)
    if count is not None and taken < count:
        raise click.exceptions.Exit(1)


async def _subscribe(
    target: Target, name: str, address: str, count: int | None, show: Show, selector: str | None = None
) -> int:

    taken, out = 0, console(stderr=True)
    with kept(target) as store:
        told = target.attaching(name, LINK, store)
        subscriber = Subscriber(target.urls, address, events=teller(out, name), filter=selector, **told)
        tell_of_others(out, store, "subscriber", subscriber.identity)
        try:
            async with until_signal(), subscriber:
                async for first in subscriber:
                    most = TOGETHER if count is None else min(TOGETHER, count - taken)
                    deliveries, until = [first], trio.current_time() + TOGETHER_S
                    write(show, first.key, first.message)
                    while len(deliveries) < most and trio.current_time() < until and (more := subscriber.here(1)):
                        write(show, more[0].key, more[0].message)
                        deliveries += more
                    await subscriber.accept_all(deliveries)
                    taken += len(deliveries)
                    if taken == count:
                        break
        finally:
            if store is not None and (timeout_s := subscriber.granted_timeout):
                again = f"{address} --id {name} --state {target.state}"
                waits = f"publishers to {address} wait for it until it is back, {format_duration(timeout_s)} at most"
                out.print(f"{name} stays subscribed: {waits}; to end it: oncemesh unsubscribe {again}", soft_wrap=True)
    return taken


@click.command()
@address_argument
@target_options
def unsubscribe(address: str, options: ClientOptions) -> None:
    """End a subscription of `subscribe --state` for good; publishers no longer wait for it.

    Give the same --id and --state as to subscribe. The command reports the messages that were processed to the routers;
    the subscription loses the messages that arrived since. If the state file is lost, wait until the timeout is over,
    or use oncemesh forget.

    \b
    Example: oncemesh unsubscribe topic/news --id reader --state reader.db
    """
    name = options.name
    if name is None or options.state is None:
        raise click.UsageError("expected --id and --state of the subscription")
    if not options.state.exists():
        raise RunError(
            f"{options.state}: the file does not exist; without it, end the subscription with oncemesh forget"
        )
    attached(_unsubscribe, options.target(name), name, address)
    click.echo(f"{printable(name)} is no longer subscribed to {printable(address)}", err=True)


async def _unsubscribe(target: Target, name: str, address: str) -> None:

    with kept(target) as store:
        assert store is not None
        subscriber = Subscriber(target.urls, address, **target.attaching(name, LINK, store))
        if not store.load("subscriber", subscriber.identity).attached:
            tell_of_others(console(stderr=True), store, "subscriber", subscriber.identity)
            raise RunError(f"{target.state} has no subscription of {name} to {address}")
        subscriber.end()
        async with subscriber:
            pass


def write(show: Show, key: bytes, message: bytes) -> None:
    """Print a message. If it is malformed, print a warning to stderr instead, because the fault of a publisher must not
    stop the subscriber."""
    try:
        shown = show(key, message)
    except AmqpError as error:
        unread = f"{printable(key.decode(errors='backslashreplace'))} cannot be read as an AMQP message: {error}"
        click.echo(unread, err=True)
    else:
        click.echo(shown)
