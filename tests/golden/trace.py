"""The acts of the nodes of a bench as readable lines: one for each batch between routers, and one for each action on a
client's link. Links and deliveries have the script's names; epochs and versions are left out."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from linkstate.mesh_actions import ContactLost
from tests.topic.bench import Bench
from tests.topic.clients import NEWS
from topic.actions import (
    AnswerDeliveries,
    AnswerPublisher,
    AnswerSubscriber,
    Credit,
    Deliver,
    Detach,
    Echo,
    LinkAction,
    Note,
    Redeliver,
    Resume,
    SettleSubscriber,
)
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.room import DrainAnswer
from topic.directory.entry import Decision, Status, unpack_entry
from topic.identity import KeyMaker, LinkIdentity, link_name
from topic.wire.segments import Segment, decode, split_keys

TAGS = [b"%d" % number for number in range(1, 10)]
"""All tags that scripts use."""


class TracedBench(Bench):
    """A bench that appends to `lines`."""

    def __init__(self, routers: list[str], publishers: Iterable[str], subscribers: Iterable[str]) -> None:
        self.lines: list[str] = []
        self._links = {link_name(LinkIdentity(name, "link", NEWS)): name for name in publishers}
        self._links |= {link_name(LinkIdentity(name, "link", NEWS)): name for name in subscribers}
        self._lives: list[bytes] = []
        self._keys: dict[bytes, str] = {}
        super().__init__(*routers)

    def carry(self, here: str, there: str, payload: bytes) -> None:
        said = [_SAID[Segment(kind)](self, *columns) for kind, *columns in decode(payload)]
        self.lines.append(f"{here} → {there}   {'; '.join(said)}")
        super().carry(here, there, payload)

    def saw(self, router: str, action: LinkAction | ContactLost | Note) -> None:
        if isinstance(action, ContactLost | Note):
            self.lines.append(f"{router}       {action.reason if isinstance(action, ContactLost) else action.text}")
        else:
            self.lines.append(f"{router} → {action.link.name}   {_DONE[type(action)](self, action)}")
        super().saw(router, action)

    def link(self, name: bytes) -> str:
        return self._links[name]

    def links(self, names: Iterable[bytes]) -> str:
        return ", ".join(map(self.link, names))

    def life(self, publisher: str, generation: bytes) -> str:
        """The number of the life among all lives so far."""
        if generation not in self._lives:
            self._lives.append(generation)
            maker = KeyMaker(link_name(LinkIdentity(publisher, "link", NEWS)), generation)
            self._keys |= {maker.key(tag): f"{publisher}{tag.decode()}" for tag in TAGS}
        return f"life {self._lives.index(generation) + 1}"

    def delivery(self, key: bytes, message: bytes | None) -> str:
        """The delivery's name, with its message if the tag does not show it."""
        name, body = self.deliveries([key]), (message or b"").decode()
        return f"{name} ({body})" if body and body != name else name

    def deliveries(self, keys: Iterable[bytes]) -> str:
        """The deliveries' names, by key or by tag: p1 is delivery 1 of p."""
        return " ".join(self._keys.get(key) or key.decode() for key in keys)

    def entry(self, packed: list[Any]) -> str:
        entry = unpack_entry(packed)
        life = f" {self.life(entry.identity.container, entry.generation)}" if entry.generation else ""
        status = "" if entry.status is Status.ATTACHED else f" {entry.status.name.lower()}"
        return f"{entry.identity.container}@{entry.router}{life}{status}"

    def entries(self, packed: list[list[Any]]) -> str:
        return ", ".join(map(self.entry, packed)) or "nobody"

    def map(self, unsettled: Mapping[bytes, int] | None) -> str:
        if unsettled is None:
            return "null map"
        named = [f"{self.deliveries([tag])}{f' {_state(state)}' if state else ''}" for tag, state in unsettled.items()]
        return f"map {{{', '.join(named)}}}"


def _state(state: int) -> str:
    return DeliveryOutcome(state).name.lower()


def _versions(versions: dict[str, list[int]]) -> str:
    return ", ".join(f"{router} v{version}" for router, (_, version) in versions.items()) or "nothing"


def _ranges(ranges: list[int]) -> str:
    pairs = zip(ranges[::2], ranges[1::2], strict=True)
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in pairs)


def _forward(
    t: TracedBench, p: bytes, _: Any, seen: Any, n: int, presettled: bool, keys: bytes, messages: Any, only: Any
) -> str:
    count = len(messages)
    alone = f", for {t.link(only[0])} alone" if only else ""
    names = [t.delivery(key, message) for key, message in zip(split_keys(keys), messages, strict=True)]
    return f"Forward {' '.join(names)} as n {_ranges([n, n + count - 1])}{alone}"


def _in_full(t: TracedBench, p: bytes, _: Any, n: int, refusals: Any, moved: list[bytes], added: bytes) -> str:
    refused = f", rejected, released, modified by {refusals}" if refusals else ""
    annotated = f", with {added!r}" if added else ""
    return f"Outcome of {t.link(p)} n {n}{refused}{f', {t.links(moved)} moved' if moved else ''}{annotated}"


def _question(verb: str) -> Callable[..., str]:
    def said(t: TracedBench, _: Any, name: bytes, __: Any, decision: int, yes: bool | None = None) -> str:
        answer = "" if yes is None else f": {'yes' if yes else 'no'}"
        return f"{verb} {t.link(name)} {Decision(decision).name.lower()}{answer}"

    return said


_SAID: Mapping[Segment, Callable[..., str]] = {
    Segment.SECTION: lambda t, _, __, own, others: (
        f"Section {t.entries(own)}" + (f"; others {t.entries(others)}" if others else "")
    ),
    Segment.PART: lambda t, own, others: f"Part {t.entries([*own, *others])}",
    Segment.DELTA: lambda t, _, __, own, gone: (
        f"Delta {t.entries(own)}" + (f"; departed {t.entries(gone)}" if gone else "")
    ),
    Segment.ACK: lambda t, _: "Ack",
    Segment.GOSSIP: lambda t, others: f"Gossip {t.entries(others)}",
    Segment.APPLIED: lambda t, versions: f"Applied {_versions(versions)}",
    Segment.JOINED: lambda t, s, _, gated: (
        f"Joined {t.link(s)}" + "".join(f", gated {t.link(p)} from n {n}" for p, n in gated.items())
    ),
    Segment.ADMIT: lambda t, s, p: f"Admit {t.link(s)} to {t.link(p)}",
    Segment.GONE: lambda t, router, incarnation: f"Gone {router} {incarnation}",
    Segment.DRAIN: lambda t, s, _, number: f"Drain of {t.link(s)} ({number})",
    Segment.GIVEN: lambda t, s, _, number, left, answer: (
        f"DrainAnswer to {t.link(s)} ({number}): {DrainAnswer(answer).name}, {left} left"
    ),
    Segment.ROOM: lambda t, s, _, count, size: f"Room of {t.link(s)}: {count}, {size} bytes",
    Segment.FORWARD: _forward,
    Segment.OUTCOME: lambda t, p, _, ranges: f"Outcome of {t.link(p)} n {_ranges(ranges)}",
    Segment.OUTCOME_IN_FULL: _in_full,
    Segment.SETTLE: lambda t, p, _, ranges: f"Settle {t.link(p)} n {_ranges(ranges)}",
    Segment.SETTLED: lambda t, p, _, ranges: f"Settled {t.link(p)} n {_ranges(ranges)}",
    Segment.FENCED: lambda t, p, _: f"Fenced {t.link(p)}",
    Segment.RESOLVE: lambda t, p, _, keys: f"Resolve {t.deliveries(split_keys(keys))}",
    Segment.RESOLVED: lambda t, p, _, keys: f"Resolved {t.deliveries(split_keys(keys))}",
    Segment.EXPIRE: _question("Expire"),
    Segment.VOTE: _question("Vote"),
    Segment.EXPIRED: _question("Expired"),
}


def _names(t: TracedBench, action: Any) -> str:
    return " ".join(t.delivery(record.key, record.message) for record in action.records)


def _resume(t: TracedBench, resume: Resume) -> str:
    how = f" {_state(resume.state)}" if resume.state else ""
    return f"resume {t.deliveries([resume.record.key])}{how}{', settled' if resume.settled else ''}"


_DONE: Mapping[type[Any], Callable[..., str]] = {
    AnswerPublisher: lambda t, a: (
        f"attached, {t.life(a.link.name, a.generation)}, credit {a.credit}, {t.map(a.unsettled)}"
    ),
    AnswerSubscriber: lambda t, a: f"attached, {t.map(a.unsettled)}",
    Detach: lambda t, a: f"detach {a.condition}: {a.description}",
    Deliver: lambda t, a: f"deliver {_names(t, a)}",
    Redeliver: lambda t, a: f"deliver {t.deliveries([a.record.key])} anew",
    Resume: _resume,
    SettleSubscriber: lambda t, a: f"settle {_names(t, a)}",
    Echo: lambda t, a: "flow(echo)",
    AnswerDeliveries: lambda t, a: f"{_state(a.outcome)} {_names(t, a)}",
    Credit: lambda t, a: f"credit {a.count}",
}
