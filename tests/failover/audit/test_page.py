"""The page: whole in itself, all that is to be told on it, nothing of what it tells taken for markup."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from failover.audit.measure.crossings import Crossing, RouterRow
from failover.audit.measure.frame import MOST_FAULTS
from failover.audit.read.faults import Fault
from failover.audit.read.inventory import Problem
from failover.audit.report import page, plots
from failover.audit.report.page import COLUMNS, ROWS, Cell, matrix
from router.cli.main import main
from tests.failover.audit.reports import BEGAN_US, KEY, measures, report, violated
from tests.failover.audit.runs import NEAR, ONE, Run

VOID = {"meta", "link", "br", "img", "hr", "input", "path", "use", "rect"}


class Page(HTMLParser):
    """The text of a page, its tags in balance."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID - {"path", "use", "rect"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def whole() -> str:
    """A page with all there is."""
    return page.render(violated(measured=measures()))


def test_it_is_whole_in_itself(whole: str) -> None:
    text, found = whole, Page(whole)
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "link", "iframe", "img", "object"}
    references = [value for _, attributes in found.tags for name, value in attributes.items() if name.endswith("href")]
    assert references and all(value and value.startswith(("#", "data:")) for value in references)
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    assert set(re.findall(r"https?://[^\s\"'<]*", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_ids_are_used_once_though_there_are_several_plots(whole: str) -> None:
    found = Page(whole)
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    referenced = {value[1:] for _, attributes in found.tags if (value := attributes.get("href")) and value[0] == "#"}
    assert len(ids) == len(set(ids)) and referenced <= set(ids)


def test_every_colour_has_a_form_for_dark_screens(whole: str) -> None:
    light, dark = (set(re.findall(r"--([\w-]+):", root)) for root in re.findall(r":root \{(.*?)\}", whole, re.DOTALL))
    used = set(re.findall(r"var\(--([\w-]+)\)", whole))
    assert light == dark and used == light
    drawings = re.findall(r"<svg.*?</svg>", whole, re.DOTALL)
    assert drawings and not any(re.search(r"(fill|stroke): #", drawing) for drawing in drawings)
    assert "@media screen and (prefers-color-scheme: dark)" in whole, "paper is light"


def test_it_opens_with_the_verdict() -> None:
    for one, headline in (
        (report(), "Exactly once holds 100 accepted"),
        (violated(), "Exactly once is violated 25 lost. 25 lost : accepted, but not processed"),
        (
            report(doubts=("a log ends early",)),
            "Undecided The logs do not show everything that matters. Why there is no clear",
        ),
        (report(problems=(Problem("run/b", "gone"),)), "No verdict Logs are missing or damaged. Why there is"),
    ):
        text = Page(page.render(one)).text
        assert headline in text[:220], text[:220]


def test_it_says_why_there_is_no_clear_verdict() -> None:
    text = Page(page.render(report(doubts=("a log ends early",), problems=(Problem("run/b/log", "gone"),)))).text
    assert "missing or damaged: run/b/log : gone" in text and "unknown: a log ends early" in text


def test_a_violation_is_listed_with_its_story() -> None:
    text = Page(page.render(violated())).text
    assert "The first 1 of 25 are listed." in text
    assert f"{KEY} of p0/link on topic/news, for s1/link on topic/news" in text
    assert "+0.0 ms router a did something +1.5 ms router b did something" in text
    assert "Marked steps concern s1/link on topic/news." in text and "a note" in text
    assert "oncemesh story run/line KEY" in text


def test_a_delivery_violated_twice_has_one_story() -> None:
    one = violated()
    again = attrs.evolve(one.findings[0], kind="duplicated")
    both = attrs.evolve(one, findings=(*one.findings, again), violations={"lost": 1, "duplicated": 1})
    found = Page(page.render(both))
    assert found.text.count("did something") == 2
    assert ("a", {"href": f"#d-{KEY}"}) in found.tags


def test_a_story_without_end_is_cut() -> None:
    one = violated()
    [story] = one.stories
    steps = story.steps[:1] * (page.STEPS_SHOWN + 5)
    text = Page(page.render(attrs.evolve(one, stories=(attrs.evolve(story, steps=steps),)))).text
    assert text.count("did something") == page.STEPS_SHOWN and "5 more steps." in text


def test_times_of_another_host_are_not_told_as_differences() -> None:
    one = violated()
    [story] = one.stories
    elsewhere = attrs.evolve(story.steps[1], host="elsewhere")
    text = Page(page.render(attrs.evolve(one, stories=(attrs.evolve(story, steps=(story.steps[0], elsewhere)),)))).text
    assert f"{elsewhere.clock[:-3]} router b" in text


EVIL = "<script>alert('$x$')</script>&amp;\"'"


def test_nothing_that_is_told_is_markup() -> None:
    one = violated(EVIL, EVIL)
    told = measures()
    assert told.chaos is not None
    evil_fault = attrs.evolve(told.faults[0], fault=Fault(EVIL, (EVIL,), BEGAN_US, None, EVIL))
    told = attrs.evolve(
        told,
        notes=(EVIL,),
        chaos=attrs.evolve(told.chaos, script=EVIL, mesh=EVIL, unfinished=(EVIL,), crashes=1),
        faults=(evil_fault,),
        series=tuple(attrs.evolve(one, party=EVIL) for one in told.series),
    )
    rows = tuple(attrs.evolve(row, publisher=EVIL, subscriber=EVIL) for row in one.pairs)
    senders = tuple(attrs.evolve(row, publisher=EVIL) for row in one.publishers)
    evil = attrs.evolve(one, run_dirs=(EVIL,), doubts=(EVIL,), pairs=rows, publishers=senders, measures=told)
    text = page.render(evil)
    found = Page(text)
    assert "<script" not in text and not any(tag == "script" for tag, _ in found.tags)
    assert found.text.count("<script>alert('$x$')</script>&amp;\"'") >= 12


@pytest.mark.parametrize("subscribers", [1, plots.CURVES, plots.CURVES + 1])
def test_any_number_of_subscribers_has_its_plot(subscribers: int) -> None:
    found = Page(page.render(report(subscribers, measures=measures(subscribers))))
    assert sum(tag == "svg" for tag, _ in found.tags) == 5
    for number in range(min(subscribers, plots.CURVES)):
        assert found.text.count(f"s{number}/link") >= 2  # narrow and wide
    descriptions = [attributes["aria-label"] for tag, attributes in found.tags if tag == "svg"]
    assert all(descriptions) and f"{subscribers} subscribers and 1 faults" in (descriptions[0] or "")
    assert all("width" not in attributes and attributes["viewbox"] for tag, attributes in found.tags if tag == "svg")


def test_no_label_of_a_plot_is_cut() -> None:
    told = measures(subscribers=1)
    long = "a-container-with-a-name-that-is-long/" + "link-" * 40
    told = attrs.evolve(told, series=tuple(attrs.evolve(one, party=long) for one in told.series))
    words = Page("".join(plots.timeline(told, width) for width in (plots.NARROW, plots.WIDE))).words
    assert "".join(word.strip() for word in words).count(long) == 2
    assert "…" not in page.render(report(measures=told))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("15000 accepted, 45000 owed", "15,000 accepted, 45,000 owed"),
        ("it holds: 1234; (5678 by nobody)", "it holds: 1,234; (5,678 by nobody)"),
        (
            "reader2000/s on topic/2000 at 2026-11-29 10:1234 of 1234.5",
            "reader2000/s on topic/2000 at 2026-11-29 10:1234 of 1234.5",
        ),
        ("999 of 1000.", "999 of 1,000."),
    ],
)
def test_numbers_in_sentences_are_written_as_all_others(text: str, shown: str) -> None:
    assert page.counts(text) == shown


def test_a_run_without_faults_or_figures_has_fewer_sections() -> None:
    calm = Page(page.render(report(measures=measures(faults=0)))).text
    assert "Faults and their cost" not in calm and "Deliveries per second" in calm
    bare = Page(page.render(report(measures=None))).text
    assert "Deliveries per second" not in bare and "What was checked" in bare
    nothing = report(subscribers=0, publishers=0, measures=attrs.evolve(measures(), series=(), faults=(), phases=()))
    assert "Exactly once" in Page(page.render(nothing)).text


def test_many_faults_are_listed_and_the_worst_are_drawn() -> None:
    """Some struck when no client ran any more."""
    told = measures(faults=MOST_FAULTS)
    assert told.faults[-1].fault.at_us > BEGAN_US + len(told.series[0].counts) * told.bin_us
    found = Page(page.render(report(measures=told)))
    assert found.text.count("no deliveries for") == MOST_FAULTS
    drawn = next(
        label for tag, a in found.tags if tag == "svg" and "without deliveries" in (label := a["aria-label"] or "")
    )
    assert drawn.count("kill b") == plots.BARS


def test_what_met_a_fault_on_its_way_is_told_with_it() -> None:
    crossing = Crossing("kill b", BEGAN_US, 12, {"accepted": 11, "unknown": 1})
    told = Page(page.render(report(measures=measures(), crossings=(crossing,)))).text
    assert "under way 11 accepted, 1 unknown" in told
    without_chaos = Page(page.render(report(crossings=(crossing,)))).text
    assert (
        "under way when a router's log broke off kill b" in without_chaos and "11 accepted, 1 unknown" in without_chaos
    )


def test_what_routers_had_to_do_again_is_told() -> None:
    router = RouterRow("a", 2, 1, 100, 3, 200, 4, 5, 6, {"received": 7, "held": 1}, 9, 10)
    told = Page(page.render(report(routers=(router,)))).text
    assert "a 2 1 broken off 3 of 100 4 of 200 5 6 8 9 10" in told


def test_the_matrix_shows_who_got_what() -> None:
    one = report(subscribers=2, publishers=2)
    lost = attrs.evolve(one.pairs[0], violations={"lost": 3}, processed=97)
    unsure = attrs.evolve(one.pairs[1], unknown=2)
    found = matrix(attrs.evolve(one, pairs=(lost, unsure, one.pairs[2])))
    assert found.columns == ("p0", "p1")
    assert found.rows == (("s0", (Cell(97, 100, 3, 0), Cell(100, 100, 0, 0))), ("s1", (Cell(100, 100, 0, 2), None)))
    assert [cell.look for _, cells in found.rows for cell in cells if cell] == ["bad", "good", "unsure"]


def test_what_the_counts_leave_unexplained_is_told() -> None:
    one = report(subscribers=1)
    pair = attrs.evolve(
        one.pairs[0], owed=98, processed=99, unowed={"ended": 2, "declined": 1}, unprocessed={"lost": 2}, away=4
    )
    alone = attrs.evolve(one.publishers[0], alone=7)
    clock = "the clocks of the hosts north and south disagree by at least 3 s"
    text = Page(page.render(attrs.evolve(one, pairs=(pair,), publishers=(alone,), clocks=(clock,)))).text
    assert "owed to subscribers 98 2 not processed processed by them 99 3 not owed" in text
    assert "100 accepted, 7 of them without a subscriber at topic/news." in text
    whose = "p0/link on topic/news to s0/link on topic/news"
    ended = "2 accepted after the subscriber's link had ended for the publisher's router"
    declined = "1 whose publisher received another outcome"
    assert f"{whose}: 3 processed but not owed: {ended}; {declined}." in text
    assert f"{whose}: 2 owed but not processed: 2 lost." in text
    assert f"{whose}: 4 accepted while this subscriber was away for longer than its timeout." in text
    assert f"{clock} (the audit does not use this clock to order events)" in text


def test_a_matrix_too_large_is_cut_where_it_matters_least() -> None:
    many = report(subscribers=ROWS + 2, publishers=COLUMNS + 1)
    last = attrs.evolve(many.pairs[-1], violations={"lost": 1})
    found = matrix(attrs.evolve(many, pairs=(*many.pairs[:-1], last)))
    assert found.columns == (f"all {COLUMNS + 1} publishers",) and found.left_out == 2
    assert (f"s{ROWS + 1}", 1) in [(name, cell.violations) for name, (cell,) in found.rows if cell]


def test_links_of_one_container_keep_their_names_apart() -> None:
    one = report(subscribers=1)
    other = attrs.evolve(one.pairs[0], subscriber="s0/other on topic/news")
    found = matrix(attrs.evolve(one, pairs=(*one.pairs, other)))
    assert [name for name, _ in found.rows] == ["s0/link on topic/news", "s0/other on topic/news"]


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 µs"),
        (850, "850 µs"),
        (1_234, "1.2 ms"),
        (999_400, "999 ms"),
        (1_580_000, "1.6 s"),
        (75e6, "75 s"),
        (None, "–"),
    ],
)
def test_durations_read_well(us: float | None, text: str) -> None:
    assert plots.duration(us) == text


def test_the_command_writes_the_page_beside_the_logs(tmp_path: Path) -> None:
    run = Run()
    run.remove(lambda row: row.get("keys") == [run.key(ONE, 2)], "clients/near")
    directory = run.write(tmp_path / "violated")
    assert CliRunner().invoke(main, ["audit", str(directory)]).exit_code == 1
    text = Page((directory / "audit.html").read_text(encoding="utf-8")).text
    assert "Exactly once is violated 1 lost" in text
    assert f"{run.key(ONE, 2).decode()} of {ONE.identity}, for {NEAR.identity}" in text
    assert "this router is its home" in text and "Deliveries per second" in text
    assert json.loads((directory / "audit.json").read_text())["stories"][0]["key"] == run.key(ONE, 2).decode()
