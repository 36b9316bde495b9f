"""What docs/mqtt.md promises to clients, watched packet by packet."""

from collections import defaultdict
from typing import TYPE_CHECKING

from attrs import define

from router.mqtt.packets import AckPacket, read_packet
from router.mqtt.values import REFUSED, V3, PacketKind
from tests.router.mqtt.bench import split
from tests.router.mqtt.sessions import Client, Line, Reader, Said, Writer

if TYPE_CHECKING:
    from tests.router.mqtt.walk import MqttWalk


class MqttViolation(AssertionError):
    """A promise was broken."""


@define
class Sent:
    """A message that a reader was sent, the last time."""

    line: Line
    identifier: int


class MqttJudge:
    def __init__(self, walk: "MqttWalk") -> None:
        self._walk = walk
        self._said: dict[int, tuple[Writer, Said]] = {}
        self._settled: set[int] = set()
        self._over: dict[int, set[int]] = {}
        """By stay: what was settled as it began."""
        self._owed: dict[int, list[Reader]] = {}
        """By number: who had a subscription as it was published."""
        self._witnessed: list[int] = []
        self._handed: dict[Reader, dict[int, set[int]]] = defaultdict(dict)
        """By number: the stays in which it was handed on."""
        self._sent: dict[Reader, dict[int, Sent]] = defaultdict(dict)
        """By reader, and number."""
        self._stays: dict[Line, int] = {}
        """Equal of lines of one client to one router, one after the other."""
        self._last: dict[Client, Line] = {}

    def is_at(self, line: Line) -> None:
        """The client is at this router now, for both."""
        last = self._last.get(line.client)
        if line not in self._stays:
            has_moved = last is None or last.router is not line.router
            self._stays[line] = len(self._stays) if has_moved or last is None else self._stays[last]
            self._over.setdefault(self._stays[line], set(self._settled))
            self._last[line.client] = line

    def published(self, writer: Writer, said: Said) -> None:
        self._said[said.number] = writer, said
        self._owed[said.number] = [reader for reader in self._walk.readers if reader.has_subscribed]

    def is_unknown(self, reader: Reader) -> None:
        assert not reader.has_subscribed, f"the session of {reader} is lost"

    # what arrives

    def witnessed(self, number: int) -> None:
        writer, said = self._said[number]
        if said.qos == 2:
            assert number not in self._witnessed, f"{number} of {writer} is published twice"
            self._check_order(number, self._witnessed, "the witness")
        self._witnessed.append(number)

    def handed_on(self, reader: Reader, number: int, line: Line) -> None:
        """What it was sent on that line."""
        self._walk.note(f"{reader} hands on {number}")
        handed, stay, said = self._handed[reader], self._stays[line], self._said[number][1]
        is_of_old = line is not reader.client.line  # let go of at another router: later, and in any order
        if said.qos == 2 and reader in self._owed[number] and number not in handed and not is_of_old:
            before = [one for one, stays in handed.items() if reader in self._owed[one] and stay in stays]
            self._check_order(number, before, str(reader))
        stays = handed.setdefault(number, set())
        assert stay not in stays or _least(said, reader) == 1, f"{reader} hands on {number} twice"
        stays.add(stay)

    def _check_order(self, number: int, before: list[int], who: str) -> None:
        """Of one writer, in one topic."""
        writer, said = self._said[number]
        stream = [one for one in before if self._said[one][0] is writer and self._said[one][1].topic == said.topic]
        assert not stream or stream[-1] < number, f"{who} has {number} of {writer} after {stream[-1]}"

    def _is_sent(self, line: Line, identifier: int, number: int) -> None:
        """A reader is: again at another router only, while the writer had not settled it as it came there."""
        reader, (_, said) = line.client.reader, self._said[number]
        assert reader is not None
        former = self._sent[reader].get(number)
        self._sent[reader][number] = Sent(line, identifier)
        if former is None or _least(said, reader) == 1:
            return
        text = f"{reader} is sent {number} again"
        if self._stays[former.line] == self._stays[line]:
            assert former.identifier == identifier, f"{text}, at one router"
            return
        assert number not in self._over[self._stays[line]], f"{text}, and it is settled"

    # what is said

    def router_reads(self, line: Line, packet: bytes) -> None:
        """What a writer settles, if it has not gone elsewhere since."""
        first, body, _ = split(packet)
        kind, identifier = PacketKind(first >> 4), int.from_bytes(body[:2], "big")
        writer = line.client.writer
        if writer is not None and kind is PacketKind.PUBREL and self._last.get(line.client) is line:
            self._settled.add(writer.latest[identifier].number)

    def router_says(self, line: Line, kind: PacketKind, body: bytes) -> None:
        """At this very moment."""
        if kind is PacketKind.PUBLISH:
            self.is_at(line)
            size = int.from_bytes(body[:2], "big")
            at = 4 + size + (0 if line.version == V3 else 1)
            self._is_sent(line, int.from_bytes(body[2 + size :][:2], "big"), int(body[at:]))
        elif kind in (PacketKind.PUBREC, PacketKind.PUBACK):
            answer, writer = read_packet(kind << 4, body, line.version), line.client.writer
            assert isinstance(answer, AckPacket) and answer.reason < REFUSED, f"{line.client} is refused: {body!r}"
            assert writer is not None
            self._check_accepted(writer.latest[answer.identifier].number)

    def _check_accepted(self, number: int) -> None:
        """All have it."""
        assert number in self._witnessed, f"{number} is accepted too early: the witness does not have it"
        for reader in self._owed[number]:
            assert number in self._handed[reader], f"{number} is accepted too early: {reader} does not have it"

    def check_all(self) -> None:
        """At the end, nothing is left open."""
        for writer in self._walk.writers:
            assert not writer.open, f"{writer} has {sorted(writer.open)} open"
        for number in self._said:
            self._check_accepted(number)


def _least(said: Said, reader: Reader) -> int:
    return min(said.qos, reader.qos)
