"""Checks the promises of docs/mqtt.md to clients, packet by packet."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import define

from router.mqtt.format.packets import AckPacket, PublishPacket, read_packet
from router.mqtt.format.values import REFUSED, PacketKind
from tests.router.mqtt.bench import split
from tests.router.mqtt.hearsay import Hearsay
from tests.router.mqtt.roles import Reader, Writer
from tests.router.mqtt.sessions import TOPICS, Client, Line, Said
from topic.directory.entry import Role

if TYPE_CHECKING:
    from tests.router.mqtt.walk import MqttWalk


class MqttViolation(AssertionError):
    """A promise was broken."""


@define
class Sent:
    """The last time that a message was sent to a reader."""

    line: Line
    identifier: int
    qos: int


class MqttJudge:
    def __init__(self, walk: "MqttWalk") -> None:
        self._walk = walk
        self._said: dict[int, tuple[Writer, Said]] = {}
        self._said_on: dict[int, Line | None] = {}
        """Keyed by number: the line on which it was published first."""
        self._copies: dict[int, list[int]] = defaultdict(list)
        """Text -> the numbers of the messages with it. How many of them have come decides which one a message is: the
        first that may come counts."""
        self._answered: set[int] = set()
        self._doubted: set[int] = set()
        """Messages that were open when their writer's session ended: they may be lost, but do not come twice."""
        self._missed: dict[Reader, dict[int, Line | None]] = defaultdict(dict)
        """Keyed by reader: messages accepted without it, as it was away for too long, and where."""
        self._settled: set[int] = set()
        self._over: dict[int, set[int]] = {}
        """Keyed by stay: the messages that were settled when it began."""
        self._owed: dict[int, list[Reader]] = {}
        """Keyed by number: the readers with a subscription when it was published."""
        self._ended: dict[Reader, set[int]] = defaultdict(set)
        """Keyed by reader: the numbers from before the end of its subscription."""
        self._lowered: dict[Reader, set[int]] = defaultdict(set)
        """Keyed by reader: numbers that may have come at QoS 1."""
        self._asked: dict[tuple[Reader, str], set[int]] = defaultdict(set)
        """Keyed by reader and topic: each QoS that it has ever asked for."""
        self._witnessed: list[int] = []
        self.hearsay = Hearsay(walk)
        self._handed: dict[Reader, dict[int, list[int]]] = defaultdict(dict)
        """Keyed by number: the stay of each time that it was handed on. A message that comes twice may count as another
        one with the same text."""
        self._sent: dict[Reader, dict[int, Sent]] = defaultdict(dict)
        """Keyed by reader and number."""
        self._stays: dict[Line, int] = {}
        """Line -> its stay: successive lines of a client to one router have the same."""
        self._last: dict[Client, Line] = {}

    def is_at(self, line: Line) -> None:
        """The client is at this router now, for both."""
        last = self._last.get(line.client)
        if line not in self._stays:
            has_moved = last is None or last.router is not line.router or last.session != line.session
            has_moved = has_moved or line.is_elsewhere
            if has_moved or last is None or last.nth > line.nth or line.client.may_have_expired:
                self.begins_anew(line)
            else:
                self._stays[line] = self._stays[last]
                self._last[line.client] = line

    def begins_anew(self, line: Line) -> None:
        """A stay of the client at the router begins."""
        self._stays[line] = len(self._over)
        self._over[len(self._over)] = set(self._settled)
        self._last[line.client] = max(line, self._last.get(line.client, line), key=lambda one: one.nth)

    def has_stayed(self, former: Line, line: Line) -> bool:
        """Whether a client was at that router all the time from one connection to the other."""
        return self._stays[former] == self._stays[line]

    def published(self, writer: Writer, said: Said) -> None:
        self._said[said.number] = writer, said
        self._said_on[said.number] = writer.client.line
        self._copies[said.text].append(said.number)
        self._owed[said.number] = []
        for reader in self._walk.readers:
            wanted, confirmed = reader.wanted[said.topic], reader.confirmed.get(said.topic, 0)
            if not wanted:
                self._ended[reader].add(said.number)
            elif confirmed:
                self._owed[said.number].append(reader)
            if 1 in (wanted, confirmed):
                self._lowered[reader].add(said.number)

    def asks(self, reader: Reader, topic: str, qos: int) -> None:
        self._asked[reader, topic].add(qos)

    def wants(self, reader: Reader, topic: str, qos: int) -> None:
        """The reader wants another QoS, or 0: no subscription."""
        for number, (_, said) in self._said.items():
            if said.topic == topic and not qos:
                self._ended[reader].add(number)
                if reader in self._owed[number]:
                    self._owed[number].remove(reader)
            elif said.topic == topic and qos == 1 and number not in self._settled:
                self._lowered[reader].add(number)

    def has_ended(self, reader: Reader) -> None:
        """The reader's session has ended: earlier messages are no longer owed to it."""
        for number in self._said:
            self._ended[reader].add(number)
            if reader in self._owed[number]:
                self._owed[number].remove(reader)
        self._missed[reader].clear()
        self.hearsay.has_ended(reader)

    def has_not_missed(self, client: Client, *, are_all_told: bool) -> None:
        """Check that a client whose session continues has missed nothing, as far as its router, or all routers, can
        know.
        """
        if client.reader is None:
            return
        where = self._missed[client.reader].items()
        if missed := [one for one, line in where if self._is_told(line, client, are_all_told=are_all_told)]:
            raise MqttViolation(f"{client} is not told that {missed} were accepted without it")

    def _is_told(self, line: Line | None, client: Client, *, are_all_told: bool) -> bool:
        """Whether the client must know what it missed on that line. Behind a cut it learns it with the next contact,
        and never if the router has died by then (protocol 10)."""
        if line is None or not self._walk.parts:
            return True
        here = client.line
        stays = here is not None and here.router is line.router and not here.connection.closing
        return not line.is_dead and (stays or are_all_told)

    def doubt(self, left: Iterable[Said]) -> None:
        self._doubted.update(said.number for said in left)

    def is_unknown(self, reader: Reader) -> None:
        assert not any(reader.confirmed.values()), f"the session of {reader} is lost"

    def _may_come_again(self, reader: Reader, number: int) -> bool:
        """Whether the message, or one with the same text, may come again at any time and place."""
        copies = self._copies[self._said[number][1].text]
        is_low = any(self._said[one][1].qos == 1 for one in copies) or not self._lowered[reader].isdisjoint(copies)
        return is_low or self._has_left(reader, number)

    def _has_left(self, reader: Reader, number: int) -> bool:
        """Whether a message with the same text may come with a later subscription, or again, as its writer was refused
        it.
        """
        text = self._said[number][1].text
        return self._may_be_another(text) or not self._ended[reader].isdisjoint(self._copies[text])

    # arrivals

    def witnessed(self, text: int) -> None:
        copies = self._copies[text]
        number = next((one for one in copies if one not in self._witnessed), copies[-1])
        writer, said = self._said[number]
        if said.qos != 1 and not self._may_be_another(text):
            assert number not in self._witnessed, f"{number} of {writer} is published twice"
            certain = [one for one in self._witnessed if not self._may_be_another(self._said[one][1].text)]
            self._check_order(number, certain, "the witness")
        self._witnessed.append(number)

    def handed_on(self, reader: Reader, number: int, line: Line) -> None:
        """A reader hands on a message that it got on that line."""
        self._walk.note(f"{reader} hands on {number}")
        handed, stay, said = self._handed[reader], self._stays[line], self._said[number][1]
        owed = {one for one, readers in self._owed.items() if reader in readers} - self._lowered[reader]
        is_of_old = line is not reader.client.line  # a PUBREL came at another router: later, and in any order
        if not said.qos or (said.qos == 2 and number in owed and number not in handed and not is_of_old):
            before = [one for one in handed if self._said[one][1].qos == said.qos and (one in owed or not said.qos)]
            if self._is_unlike_others(number):
                self._check_order(number, [one for one in before if self._is_unlike_others(one)], str(reader))
        stays = handed.setdefault(number, [])
        assert stay not in stays or self._may_come_again(reader, number), f"{reader} hands on {number} twice"
        stays.append(stay)

    def _is_unlike_others(self, number: int) -> bool:
        """Whether the message has a text of its own. Messages with the same text may be taken for each other."""
        return len(self._copies[self._said[number][1].text]) == 1

    def _check_order(self, number: int, before: list[int], who: str) -> None:
        """Check the order of the messages of one writer in one topic."""
        writer, said = self._said[number]
        stream = [one for one in before if (found := self._said[one])[0] is writer and found[1].stream == said.stream]
        if not said.qos:  # messages left at a router come at any time
            stream = [one for one in stream if self._are_of_one_stay(one, number)]
        assert not stream or stream[-1] < number, f"{who} has {number} of {writer} after {stream[-1]}"

    def _are_of_one_stay(self, former: int, later: int) -> bool:
        here, there = self._said_on[former], self._said_on[later]
        return here is not None and there is not None and self.has_stayed(here, there)

    def _which(self, reader: Reader, text: int, sent: Sent, *, dup: bool) -> int:
        """The number of the message that a reader has got."""
        stay, known = self._stays[sent.line], self._sent[reader]
        copies = self._copies[text]
        here = [one for one in copies if one in known and self._stays[known[one].line] == stay]
        if again := [one for one in here if dup and known[one].identifier == sent.identifier]:
            return again[-1]
        new = [one for one in copies if one not in here]
        may_come = [one for one in new if one not in self._over[stay]]
        owed = [one for one in may_come if one not in self._ended[reader]]
        return (owed or may_come or (new or copies)[-1:])[0]

    def _is_sent(self, reader: Reader, number: int, sent: Sent) -> None:
        """A message is sent to a reader. It may come again only at another router, and only if the writer had not
        settled it when the reader came there. A reader to which it is not owed, as it subscribed later, may not have
        answered a settled one."""
        said, former = self._said[number][1], self._sent[reader].get(number)
        self._sent[reader][number] = sent
        assert said.topic != TOPICS[1] or reader.left is not sent.line, f"{reader} is sent {number}, which it has left"
        assert said.qos or former is None, f"{reader} is sent {number} again, which is of QoS 0"
        if number in self._ended[reader] or sent.line.session != reader.client.session:
            return
        if former is None:
            asked = [reader.wanted[said.topic], reader.confirmed.get(said.topic, 0)]
            if self.hearsay.may_lack(reader, sent.line.router.name):  # the router may know an earlier QoS
                asked += self._asked[reader, said.topic]
            assert sent.qos in [min(said.qos, qos) for qos in asked if qos], (
                f"{reader} is sent {number} at QoS {sent.qos}"
            )
            return
        text, stay = f"{reader} is sent {number} again", self._stays[sent.line]
        if self._stays[former.line] == stay:
            is_copy = former.qos == 1 or former.identifier == sent.identifier
            assert is_copy or self._has_left(reader, number), f"{text}, at one router"
        elif reader in self._owed[number] and not self._may_come_again(reader, number):
            assert number not in self._over[stay], f"{text}, and it is settled"

    # packets between routers and clients

    def router_reads(self, line: Line, packet: bytes) -> None:
        """The router reads a packet. A writer settles with it unless it has gone elsewhere since, or publishes."""
        first, body, _ = split(packet)
        kind, identifier = PacketKind(first >> 4), int.from_bytes(body[:2], "big")
        writer = line.client.writer
        if kind is PacketKind.PUBLISH and self._walk.parts:
            found = read_packet(first, body, line.version)
            assert isinstance(found, PublishPacket)
            self._reads_apart(line, found)
        if writer is not None and kind is PacketKind.PUBREL and self._last.get(line.client) is line:
            self._settled.add(line.latest[identifier].number)

    def _reads_apart(self, line: Line, packet: PublishPacket) -> None:
        """Note which subscriptions its router may not know, as contacts are lost."""
        for number in self._copies[int(packet.payload)]:
            for reader in self._walk.readers:
                known = line.knows(reader.client, packet.topic, Role.SUBSCRIBER)
                if known is None or not known.live:
                    self._reads_without(line, number, reader)
            self.hearsay.is_read(line, number, packet)

    def _reads_without(self, line: Line, number: int, reader: Reader) -> None:
        """A reader that has subscribed behind a cut is not owed this message."""
        self._ended[reader].add(number)
        if reader in self._owed[number]:
            may_be = reader.client.may_have_expired or self.hearsay.may_lack(reader, line.router.name)
            assert may_be, f"{line.router.name} reads {number}, and has not heard of {reader}"
            self._owed[number].remove(reader)

    def router_says(self, line: Line, first: int, body: bytes) -> int:
        """The router sends a packet at this very moment. Returns the number of its message; 0 if it is no PUBLISH."""
        reader, writer = line.client.reader, line.client.writer
        if first >> 4 == PacketKind.SUBACK and reader is not None:
            self.hearsay.is_answered(reader, line.router.name)
        if first >> 4 not in (PacketKind.PUBLISH, PacketKind.PUBREC, PacketKind.PUBACK):
            return 0
        packet = read_packet(first, body, line.version)
        if isinstance(packet, PublishPacket):
            assert reader is not None
            self.is_at(line)
            sent = Sent(line, packet.identifier, packet.qos)
            number = self._which(reader, int(packet.payload), sent, dup=packet.dup)
            self._is_sent(reader, number, sent)
            return number
        assert isinstance(packet, AckPacket) and writer is not None
        said = line.latest[packet.identifier]
        if packet.reason >= REFUSED:
            assert self._is_refused(said.text), f"{line.client} is refused: {body!r}"
        self.hearsay.is_accepted(line, said.number)
        self._check_answered(said.number, line)
        return 0

    def _is_refused(self, text: int) -> bool:
        """Whether a reader has refused it. A writer that does not know that sends it again, as at QoS 1."""
        return any(text in reader.refused for reader in self._walk.readers)

    def _may_be_another(self, text: int) -> bool:
        """Whether the mesh may consider a repeated message another one."""
        return self._is_refused(text) or any(map(self.hearsay.may_be_another, self._copies[text]))

    def may_be_refused(self, said: Said) -> bool:
        return any(reader.refuses(said.text) for reader in self._walk.readers)

    def _check_answered(self, number: int, line: Line | None = None) -> None:
        """Check that all have the message, as often as equal ones were accepted. At QoS 0 it comes at most once."""
        said = self._said[number][1]
        if not said.qos:
            return
        self._answered.add(number)
        copies, text = self._copies[said.text], f"{number} is answered too early"
        due = [one for one in copies if one in self._answered]
        witnessed = sum(one in self._witnessed for one in copies)
        assert witnessed >= len(due), f"{text}: the witness does not have it"
        for reader in list(self._owed[number]):
            handed = sum(len(self._handed[reader].get(one, ())) for one in copies)
            has_all = handed >= sum(reader in self._owed[one] for one in due) or said.text in reader.refused
            is_left = self.hearsay.may_be_left_behind(reader)
            assert has_all or is_left or reader.client.may_have_expired, f"{text}: {reader} does not have it"
            if not has_all and (is_left or self._is_refused(said.text)):
                self._owed[number].remove(reader)  # no reader is told of a message that is not accepted
            elif not has_all:
                self._missed[reader].setdefault(number, line)

    def check_all(self) -> None:
        """Check at the end that nothing is left open."""
        for writer in self._walk.writers:
            assert not writer.open, f"{writer} has {sorted(writer.open)} open"
        for client in self._walk.clients:
            self.has_not_missed(client, are_all_told=True)
        for number in self._said.keys() - self._doubted:
            self._check_answered(number)
