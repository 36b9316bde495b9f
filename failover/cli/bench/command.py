"""The command `oncemesh bench`."""

import json
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from failover.cli.bench.histogram import Histogram
from failover.cli.bench.load import MS, STAMP, BenchPlan, Load, Measured, figures
from failover.cli.clients import address_argument, attached, find_target, read_rate, read_size, read_urls, teller
from failover.cli.watch.mesh_client import read_duration
from router.amqp.sasl.credentials import Credentials
from router.cli.access.login import login_options
from router.cli.base import console, run_dir_option, until_signal

ROWS = 12
WIDTH = 40


@click.command()
@address_argument
@click.option("--publishers", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--subscribers", type=click.IntRange(0, 1000), default=1, show_default=True)
@click.option("--size", callback=read_size, default="100B", show_default=True, help="Size of each message body.")
@click.option(
    "--rate", type=float, callback=read_rate, help="Messages per second of all publishers together. Default: no limit."
)
@click.option(
    "--warm-up",
    callback=read_duration,
    default="2s",
    show_default=True,
    help="Length of the load before the measurement begins.",
)
@click.option("--duration", callback=read_duration, default="10s", show_default=True, help="Length of the measurement.")
@click.option("--json", "machine", is_flag=True, help="Print one JSON object, latencies in ms.")
@click.option(
    "--url",
    "urls",
    multiple=True,
    callback=read_urls,
    help="A router to connect to, amqp://host:port; may be repeated.",
)
@run_dir_option
@login_options
def bench(
    address: str,
    publishers: int,
    subscribers: int,
    size: int,
    rate: float | None,
    warm_up: float,
    duration: float,
    machine: bool,
    urls: tuple[str, ...],
    run_dir: Path | None,
    credentials: Credentials,
) -> None:
    """Load a running mesh and measure its rate and latency.

    The clients attach to the routers in turn, and move to another router when theirs dies. Latency is measured from the
    time when a message was due, to its outcome and to each subscriber. Set --rate to measure latency: without a limit,
    each message mostly waits for earlier ones. All clients run in this one Python process, so the figures include
    their own work; bench says so if the clients were the limit. Other subscribers of the address get the messages, too.

    \b
    Examples:
      oncemesh bench topic/bench --rate 1000
      oncemesh bench topic/bench --publishers 3 --subscribers 3 --size 4KiB --json
    """
    if size < STAMP:
        raise click.BadParameter(
            f"expected at least {STAMP} bytes: each body carries the time when it was due", param_hint="--size"
        )
    target = find_target(run_dir, urls, None, "bench", credentials=credentials)
    plan = BenchPlan(address, publishers, subscribers, size, rate, warm_up, duration)
    out = console(stderr=True)
    load = Load(plan, target.urls, target.credentials, teller(out, "bench", first=False))

    async def measure() -> bool:
        async with until_signal() as scope:
            with out.status(f"{duration:g} s of load after {warm_up:g} s of warm-up"):
                await load.run()
        return scope.cancelled_caught

    if attached(measure):
        raise click.ClickException("interrupted: there are no results")
    if machine:
        click.echo(json.dumps(load.measured.as_json()))
    else:
        show(console(), load.measured)
    if set(load.measured.outcomes) != {"accepted"}:
        raise click.exceptions.Exit(1)


def show(out: Console, measured: Measured) -> None:
    told = measured.as_json()
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in measured.outcomes.items()) or "nothing sent"
    out.print(f"{outcomes} in {measured.seconds:.1f} s: {told['accepted_per_s']:,} a second", style="bold")
    if measured.plan.rate is not None and told["accepted_per_s"] < 0.95 * measured.plan.rate:
        out.print(f"the requested rate was {measured.plan.rate:,g} a second", style="yellow")
    for name, histogram in (("outcome", measured.acceptance), ("subscriber", measured.delivery)):
        found = figures(histogram) or {}
        quantiles = "  ".join(f"{quantile} {value}" for quantile, value in found.items()) or "-"
        out.print(f"latency to its {name}, ms:  {quantiles}", soft_wrap=True)
    _bars(out, measured.delivery if measured.delivery.count else measured.acceptance)
    share = f"the clients used {told['client_processor']:.0%} of a processor"
    if measured.is_busy:
        out.print(
            f"{share}: they were the limit, so these figures do not measure the mesh", style="yellow", soft_wrap=True
        )
    else:
        out.print(share)


def _bars(out: Console, histogram: Histogram) -> None:
    most = max((count for _, count in histogram.bars(ROWS)), default=1) or 1
    for end, count in histogram.bars(ROWS):
        bar = "█" * round(WIDTH * count / most) or ("▏" if count else "")
        out.print(Text(f"up to {end / MS:>10,.2f} ms  {count:>9,}  {bar}"))
