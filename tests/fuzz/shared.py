"""MQTT clients that share subscriptions in any way: strange groups and filters, the same one twice, in many sessions at
once, together with other packets (protocol 14.22).

    publisher - a ~~~ b - subscriber      the good pairs of `tests.fuzz.queues`
    writer - a ~~~ c - member             a good group
"""

from collections.abc import Iterator
from random import Random
from typing import Final

from router.mqtt.format.values import V3, V5, PacketKind
from tests.fuzz.mutation import damaged
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import MqttGuest
from tests.router.mqtt.shared_bench import SharedBench

GROUPS: Final = ("g", "g", "h", "ü", "%", "%25", "%2B", "*", ".", " ", "$share", "x" * 100, "", "g+", "#", "+")
FILTERS: Final = (
    "topic/f", "topic/f", "topic/+", "topic/#", "topic/+/x", "topic/*", "topic/*.x", "topic/a.b", "topic/%2B",
    "topic/%252A", "topic/ü", "topic/", "topic", "topic//f", "topic/f/", "topic/f+", "topic/#/x", "/", "", "#", "+",
    "queue/f", "queue/#", "queue/_temporary/share/g/topic/f", "_sets/q0/in/queue/f", "$share/g/topic/f", "$SYS/x",
    f"topic/{'x' * 150}", f"topic/{'x' * 300}",
)  # fmt: skip
NAMES: Final = ("c0", "c1", "c2", "c3", "c4", "")
TOPICS: Final = ("topic/f", "topic/a.b", "topic/f/x", "topic//f", "queue/_temporary/share/g/topic/f")
OPTIONS: Final = (0, 1, 2, 1, 2, 0x0A, 0x11, 0x22)
ODD_OPTIONS: Final = (3, 0x04, 0x05, 0x30, 0xC0)
GOOD_GROUP: Final = "$share/good/topic/shared"
GOOD_TOPIC: Final = "topic/shared"
ACTS: Final = 8
REST_S: Final = 40.0
"""Seconds after which each SUBSCRIBE has its SUBACK."""


class SharedMesh(SharedBench):
    """A mesh with a good group besides the good pairs."""

    def __init__(self) -> None:
        SharedBench.__init__(self, *"abc")
        self._good_writer = self.client("a", "good writer", expiry=4)
        self._good_member = self.client("c", "good member", expiry=4)
        self._good_member.say(by_hand.subscribe(1, [(GOOD_GROUP, 2)]))
        self._shared = 0

    def check_group(self) -> None:
        """Check that the good member is served."""
        self._shared += 1
        self._good_writer.say(by_hand.publish(GOOD_TOPIC, b"%d" % self._shared, 2, self._shared))
        self.time(1.0)
        self._good_writer.say(by_hand.ack(PacketKind.PUBREL, self._shared))
        payloads = [b"%d" % number for number in range(1, self._shared + 1)]
        assert self._good_member.payloads == payloads, "the good member has not got it"
        assert self._good_writer.told(PacketKind.PUBREC)[-1] == (self._shared, 0), "the good writer was not told"

    def leave(self) -> None:
        for guest in (self._good_writer, self._good_member):
            guest.say(by_hand.disconnect(0, {"session-expiry-interval": 0}))
            guest.leave()


class Talk:
    """The packets of one client."""

    def __init__(self, rng: Random, guest: MqttGuest) -> None:
        self._rng, self._guest = rng, guest
        self._asked: dict[int, int] = {}
        """Maps the identifier of each SUBSCRIBE and UNSUBSCRIBE to the number of its topics."""
        self._filters: list[str] = []

    def packets(self) -> Iterator[bytes]:
        rng, version = self._rng, self._guest.version
        found = {"session-expiry-interval": rng.choice((1, 4, 1000))} if rng.random() < 0.6 else {}
        name = rng.choice(NAMES)
        yield by_hand.connect(name, version, clean=not name or rng.random() < 0.5, found=found)
        for _ in range(rng.randrange(ACTS)):
            yield b"".join(self._act() for _ in range(rng.choice((1, 1, 1, 3))))
        if rng.random() < 0.4:
            yield by_hand.DISCONNECT

    def _act(self) -> bytes:
        rng = self._rng
        acts = self._subscribe, self._subscribe, self._unsubscribe, self._publish
        return rng.choice(acts)() if rng.random() < 0.95 else rng.choice((by_hand.PINGREQ, by_hand.packet(0xF0)))

    def _identifier(self, count: int) -> int:
        identifier = len(self._asked) + 1
        self._asked[identifier] = count
        return identifier

    def _subscribe(self) -> bytes:
        rng = self._rng
        filters = [(self._filter(), self._options()) for _ in range(rng.choice((1, 1, 2, 5)))]
        if rng.random() < 0.2:
            filters.append(filters[0])
        self._filters += [name for name, _ in filters]
        return by_hand.subscribe(self._identifier(len(filters)), filters, self._guest.version)

    def _unsubscribe(self) -> bytes:
        rng = self._rng
        known = [*self._filters, self._filter()]
        filters = [rng.choice(known) for _ in range(rng.choice((1, 1, 2, 5)))]
        return by_hand.unsubscribe(self._identifier(len(filters)), filters, self._guest.version)

    def _filter(self) -> str:
        rng = self._rng
        asked = rng.choice(FILTERS) if rng.random() < 0.6 else FILTERS[0]
        if rng.random() < 0.15:
            return rng.choice((asked, "$share", "$share/", "$share//", "$SHARE/g/topic/f", "$share/g"))
        return f"$share/{rng.choice(GROUPS)}/{asked}"

    def _options(self) -> int:
        if self._guest.version == V3:
            return self._rng.randrange(3)
        return self._rng.choice(OPTIONS) if self._rng.random() < 0.98 else self._rng.choice(ODD_OPTIONS)

    def _publish(self) -> bytes:
        rng, qos = self._rng, self._rng.randrange(3)
        identifier = rng.randrange(1, 5)
        return by_hand.publish(rng.choice(TOPICS), rng.randbytes(rng.choice((0, 3, 3000))), qos, identifier)

    def check(self) -> None:
        """Check that the client has one answer to each request, with a code for each topic."""
        guest = self._guest
        if guest.connection.closed or guest.connection.is_over:
            return
        assert not self._asked.keys() - self._answered().keys(), f"no answer to {self._asked}"
        for identifier, count in self._answered().items():
            assert count in (None, self._asked[identifier]), f"{count} codes in the answer to {identifier}"

    def _answered(self) -> dict[int, int | None]:
        """Maps the identifiers of answers to the number of codes; None if the answer has no codes."""
        is_old = self._guest.version == V3
        found: dict[int, int | None] = {}
        for heard in self._guest.heard:
            if heard.kind in (PacketKind.SUBACK, PacketKind.UNSUBACK):
                assert heard.identifier not in found, f"two answers to {heard.identifier}"
                has_codes = heard.kind is PacketKind.SUBACK or not is_old
                found[heard.identifier] = len(heard.body) - (2 if is_old else 3) if has_codes else None
        return found


def shared(rng: Random) -> None:
    """A few clients share subscriptions at the same time, in any way."""
    mesh = SharedMesh()
    share = rng.choice((0.0, 0.0, 0.02))
    guests = [mesh.stranger(rng.choice("abc"), rng.choice((V3, V5, V5))) for _ in range(rng.randint(3, 7))]
    for guest in guests:
        guest.acks = rng.random() < 0.7
    there = [(guest, talk, talk.packets()) for guest in guests for talk in [Talk(rng, guest)]]
    ended: list[tuple[MqttGuest, Talk]] = []
    while there:
        at = rng.randrange(len(there))
        guest, talk, said = there[at]
        data = next(said, b"")
        if data and not guest.connection.closed:
            guest.say(damaged(rng, data) if rng.random() < share else data)
        else:
            del there[at]
            if rng.random() < 0.5:
                guest.leave()
            else:
                ended.append((guest, talk))
        mesh.is_slow = rng.random() < 0.2
        if not mesh.is_slow:
            mesh.flow()
        if rng.random() < 0.05:
            mesh.time(rng.choice((0.1, 1.0, 3.0)))
        if rng.random() < 0.03:
            mesh.part(rng.choice("ab"), "c")
    mesh.is_slow = False
    mesh.flow()
    mesh.meet()
    mesh.time(REST_S)
    for guest, talk in ended:
        if not share:
            talk.check()
        guest.leave()
    mesh.check()
    mesh.check_group()
    mesh.leave()
    mesh.check_forgotten()
    mesh.end()
