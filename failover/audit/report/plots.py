"""Draws the plots of the page as inline SVG. Texts remain texts, and nothing is loaded from elsewhere.

There are two widths: a narrow plot can be read on 360 CSS pixels, a wide one is for paper and desks.
"""

import io
import re
from collections.abc import Sequence
from html import escape
from textwrap import fill
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from failover.audit.measure.figures import Distribution, FaultMeasure, Measures, Series, bucket_us

NARROW, WIDE = 4.3, 9.0
"""The widths of plots in inches of 72 units. On 360 pixels, the text of a narrow plot has about its nominal size."""
CURVES = 12
"""A plot has at most this number of curves of subscribers. If there are more subscribers, it shows the ones with the
longest pauses."""
BARS = 20
BURST = 2.5
"""If a rate is more than this many times the usual one, it rises above its plot."""
BLUE, ORANGE, PEACH, INK, FAINT = "#1f5f99", "#c2410c", "#fbe3d4", "#1c1c1c", "#8a8a8a"
COLOURS = {BLUE: "router", ORANGE: "fault", PEACH: "fault-tint", INK: "ink", FAINT: "faint", "#ffffff": "paper"}
"""The names of the colours in the page's style sheet, which has other colours for dark screens."""
_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "svg.fonttype": "none",
    "text.parse_math": False,
}


def _style(plot: str) -> Any:
    """Draw in the style of the page. The plot's name makes the ids in its SVG unique on the page, and equal from run to
    run."""
    settings: Any = _STYLE | {"svg.hashsalt": plot}
    return matplotlib.rc_context(settings)


def timeline(measures: Measures, width: float) -> str:
    """Plot the deliveries per second: first the acceptances of all publishers, then the deliveries of each subscriber.
    Faults are shown with their numbers."""
    subscribers = [one for one in measures.series if one.role == "subscriber"]
    paused = sorted(subscribers, key=lambda one: one.longest.us if one.longest else 0, reverse=True)[:CURVES]
    what = f"{len(subscribers)} subscribers and {len(measures.faults)} faults"
    with _style(f"timeline {width}"):
        figure = _curves(measures, [one for one in subscribers if one in paused], width)
        return svg(figure, "Deliveries per second over the run", f"Per subscriber, with faults marked: {what}.")


def _rates(one: Series, measures: Measures) -> NDArray[np.float64]:
    return np.array(one.counts, np.float64) * 1_000_000 / measures.bin_us


def _curves(measures: Measures, subscribers: Sequence[Series], width: float) -> Figure:
    titles = [_folded(name, width) for name in ("accepted, all publishers", *(one.party for one in subscribers))]
    rows, more = len(titles), sum(title.count("\n") for title in titles)
    figure = Figure(figsize=(width, 0.62 * rows + 0.16 * more + 0.75), layout="constrained")
    axes = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
    bins = len(measures.series[0].counts) if measures.series else 1
    edges = np.arange(bins + 1) * measures.bin_us / 1_000_000
    accepted = sum((_rates(one, measures) for one in measures.series if one.role == "publisher"), np.zeros(bins))
    curves = [(accepted, INK), *((_rates(one, measures), BLUE) for one in subscribers)]
    for axis, title, (rates, colour) in zip(axes, titles, curves, strict=True):
        axis.stairs(rates, edges, fill=True, color=colour, linewidth=0)
        axis.set_title(title, loc="left", pad=3)
        _scale(axis, rates)
        _mark(axis, measures)
    if measures.chaos is not None and measures.chaos.offered:
        axes[0].axhline(measures.chaos.offered, color=FAINT, linewidth=0.8, linestyle="--")
    _number(axes[0], measures, width)
    axes[-1].set_xlabel("seconds")
    axes[-1].set_xlim(0, edges[-1])
    return figure


def _scale(axis: Axes, rates: NDArray[np.float64]) -> None:
    """Scale the axis for the usual rates. A burst, for example after a pause, may rise above the plot and then gets a
    label."""
    usual = float(np.quantile(rates[rates > 0], 0.75)) if (rates > 0).any() else 1.0
    peak = float(rates.max(initial=0))
    top = max(1.0, min(peak * 1.08, usual * BURST))
    axis.set_ylim(0, top)
    axis.set_yticks([0, _rounded(top)])
    axis.yaxis.set_major_formatter("{x:,.0f}")
    if peak > top:
        axis.set_title(f"▲ {peak:,.0f}", loc="right", pad=3, fontsize=8)


def _rounded(top: float) -> int:
    """A round number below the top of an axis, which is used as the axis's label."""
    scale = 10 ** (len(str(int(top))) - 1)
    return max(1, int(top // scale * scale))


def _folded(name: str, width: float) -> str:
    """Split a name into lines that leave room for the label of a peak beside the last line."""
    return fill(name, round(width * 9) - 6, break_on_hyphens=False)


def _seconds(us: int, measures: Measures) -> float:
    return (us - measures.began_us) / 1_000_000


def _mark(axis: Axes, measures: Measures) -> None:
    end = len(measures.series[0].counts) * measures.bin_us / 1_000_000 if measures.series else 0
    faults = [one.fault for one in measures.faults]
    ends = [end if fault.until_us is None else _seconds(fault.until_us, measures) for fault in faults]
    spans = [(_seconds(fault.at_us, measures), till) for fault, till in zip(faults, ends, strict=True)]
    across = axis.get_xaxis_transform()
    lengths = [(since, till - since) for since, till in spans]
    axis.broken_barh(lengths, (0, 1), color=PEACH, linewidth=0, zorder=0, transform=across)
    axis.vlines([since for since, _ in spans], 0, 1, color=ORANGE, linewidth=0.9, transform=across)


def _number(axis: Axes, measures: Measures, width: float) -> None:
    """Write the numbers of the faults above the first plot, in up to three rows. Numbers that would overlap are left
    out."""
    seconds = len(measures.series[0].counts) * measures.bin_us / 1_000_000 if measures.series else 1
    room = 0.16 / width * seconds
    taken = [-room] * 3
    for number, one in enumerate(measures.faults, 1):
        at = _seconds(one.fault.at_us, measures)
        row = next((row for row, last in enumerate(taken) if at - last >= room), None)
        if row is None or not 0 <= at <= seconds:
            continue
        taken[row] = at
        place = (at, 1.0)
        label: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 8.5}
        axis.annotate(str(number), place, (0, 13 + 10 * row), color=ORANGE, weight="bold", ha="center", **label)


def latencies(measures: Measures, name: str) -> str:
    """Plot the time from publication to `name`, as a histogram for each phase."""
    with _style(f"latency {name}"):
        told = [(phase.phase, getattr(phase, name)) for phase in measures.phases]
        figure = Figure(figsize=(NARROW, 0.95 * len(told) + 0.55), layout="constrained")
        axes = list(figure.subplots(len(told), 1, sharex=True, squeeze=False)[:, 0])
        for axis, (phase, found) in zip(axes, told, strict=True):
            _histogram(axis, phase, found)
        axes[-1].set_xscale("log")
        axes[-1].xaxis.set_major_locator(LogLocator(10))
        axes[-1].xaxis.set_major_formatter(FuncFormatter(lambda us, _: duration(us)))
        axes[-1].xaxis.set_minor_locator(NullLocator())
        title = f"Time from publishing until {name}"
        return svg(figure, title, "; ".join(f"{phase}: {quantile_text(found)}" for phase, found in told))


def _histogram(axis: Axes, phase: str, found: Distribution) -> None:
    counts = dict(found.buckets)
    axis.set_title(f"{phase}: {found.quantiles.count:,}", loc="left", pad=3)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    if not counts:
        axis.text(0.5, 0.4, "none", transform=axis.transAxes, ha="center", color=FAINT)
        return
    first, last = min(counts), max(counts)
    edges = [bucket_us(number) for number in range(first, last + 2)]
    axis.stairs([counts.get(number, 0) for number in range(first, last + 1)], edges, fill=True, color=BLUE)
    for share, style in (("p50", "-"), ("p99", "--")):
        at = getattr(found.quantiles, share)
        axis.axvline(at, color=ORANGE, linewidth=1.1, linestyle=style)
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 8}
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6}
        axis.annotate(share, (at, 1), (3, -8), color=ORANGE, bbox=behind, **place)


def quantile_text(found: Distribution) -> str:
    told = found.quantiles
    if not told.count:
        return "none"
    shown = ((name, getattr(told, name)) for name in ("p50", "p90", "p99", "max"))
    return ", ".join(f"{name} {duration(us)}" for name, us in shown)


def pauses(measures: Measures) -> str:
    """Plot the longest time without deliveries at each fault: for the worst subscriber, for the median one, and for the
    worst publisher."""
    worst = sorted(enumerate(measures.faults, 1), key=lambda told: _worst(told[1]), reverse=True)[:BARS]
    with _style("pauses"):
        figure = Figure(figsize=(NARROW, 0.42 * len(worst) + 0.95), layout="constrained")
        axis = figure.subplots()
        _bars(axis, sorted(worst))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda us, _: duration(us) if us else "0"))
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.set_xlim(left=0)
        figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=8, handlelength=1)
        told = "; ".join(f"{number} {one.fault.text}: {duration(_worst(one))}" for number, one in sorted(worst))
        return svg(figure, "Longest time without deliveries at each fault", told)


def _worst(one: FaultMeasure) -> int:
    return max(one.subscribers.worst_us or 0, one.publishers.worst_us or 0)


def _bars(axis: Axes, told: Sequence[tuple[int, FaultMeasure]]) -> None:
    rows = np.arange(len(told), dtype=float)
    worst = [one.subscribers.worst_us or 0 for _, one in told]
    axis.barh(rows - 0.19, worst, 0.36, color=BLUE, label="worst subscriber")
    publishers = [one.publishers.worst_us or 0 for _, one in told]
    axis.barh(rows + 0.19, publishers, 0.36, color=FAINT, label="worst publisher")
    median = [one.subscribers.median_us or 0 for _, one in told]
    axis.plot(median, rows - 0.19, "|", color=ORANGE, markersize=9, markeredgewidth=2, label="median")
    axis.set_yticks(rows, [str(number) for number, _ in told], color=ORANGE, weight="bold")
    axis.tick_params(axis="y", length=0)
    axis.invert_yaxis()


def duration(us: float | None) -> str:
    """A duration as text, for example 850 µs, 1.2 ms, 16 ms, 1.6 s or 75 s."""
    if us is None:
        return "–"
    for unit, scale in (("µs", 1), ("ms", 1_000), ("s", 1_000_000)):
        if us < 999.5 * scale or unit == "s":
            value = us / scale
            return f"{value:,.0f} {unit}" if value >= 9.95 or value == round(value) else f"{value:.1f} {unit}"
    raise AssertionError("seconds take everything")


def svg(figure: Figure, title: str, description: str) -> str:
    """Return the figure as inline SVG. It has no file header and no needless ids, fits its container, and has a
    description for readers that cannot see it."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)
    drawing = text[text.index("<svg") :]
    drawing = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", drawing, count=1)
    drawing = re.sub(r'<svg ([^>]*?)height="[^"]*"', r"<svg \1", drawing, count=1)
    referenced = set(re.findall(r"#([\w.-]+)", drawing))
    drawing = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in referenced else "", drawing)
    for colour, name in COLOURS.items():
        drawing = drawing.replace(colour, f"var(--{name})")
    told = f'role="img" aria-label="{escape(title)}. {escape(description)}" '
    return drawing.replace("<svg ", f"<svg {told}", 1)
