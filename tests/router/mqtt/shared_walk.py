"""Random walks of the members of one group: they join, leave and move, while routers are killed and lose contacts.

    members, writers - a ~~~ b ~~~ c - members, writers       three replicas of the set that has the group's queue

The judge knows of each message who has got it, and whether the member has answered it completely. It checks these
promises of docs/mqtt.md:

- The group loses no message that it has been promised (`SharedJudge`).
- A second member gets a message only if the first one may not have answered it.
- The queue is there as long as the group has members, and nothing is left after the last one.

    python -m tests.router.mqtt.shared_walk SEED [--trace]
"""

import argparse
import logging
from collections.abc import Callable
from random import Random

from attrs import define, field

from router.mqtt.format.packets import PublishPacket
from router.mqtt.format.values import REFUSED, PacketKind
from tests.fuzz.queues import SET
from tests.garbage import collect_seldom
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttGuest
from tests.router.mqtt.shared_bench import QUEUE, SHARED, SharedBench

STEPS = 80
EXPIRY_S = 4
"""The session expiry of members that come back."""
APART_S = 20
"""After this time without all routers in contact, they are brought together. A leader waits for a minute for the
members of a router that it does not know (protocol 14.21)."""
REST_S = 15
FORGOTTEN_S = 70
"""Seconds after which nothing may be left of the group."""
LAST = [b"last %d" % number for number in range(6)]


class SharedViolation(AssertionError):
    """A promise is broken."""


class Line(MqttGuest):
    @property
    def is_dead(self) -> bool:
        return self.router.mesh.routers.get(self.router.name) is not self.router

    @property
    def is_over(self) -> bool:
        return self.is_dead or self.connection.closed or self.connection.is_over

    def end(self) -> None:
        if not self.is_dead and self in self.router.guests:
            self.leave()


@define(eq=False)
class MemberLine(Line):
    """One connection of a member. The judge hears of all messages and answers."""

    member: "Member" = field(kw_only=True)
    of: dict[int, bytes] = field(factory=dict)
    """Maps the identifiers of packets in flight to payloads."""

    def _takes(self, packet: PublishPacket) -> None:
        self.of[packet.identifier] = packet.payload
        self.member.walk.judge.gets(packet.payload, self)
        super()._takes(packet)

    def _answers(self, kind: PacketKind, identifier: int) -> None:
        super()._answers(kind, identifier)
        if kind is not PacketKind.PUBREC and identifier in self.of:
            self.member.walk.judge.answers(self.of.pop(identifier), self)

    @property
    def code(self) -> int | None:
        """The code of its SUBACK; None if there is none yet."""
        return next((heard.body[-1] for heard in self.heard if heard.kind is PacketKind.SUBACK), None)


@define(eq=False)
class Member:
    walk: "SharedWalk"
    name: str
    expiry: int
    """The session expiry, in seconds; 0 if the member never comes back."""
    qos: int
    acks: bool
    line: MemberLine | None = None
    is_joined: bool = False
    """Whether it has read its SUBACK."""
    is_known: bool = False
    """Whether all routers in contact have heard of it. A router that has not may let it in without a session."""
    since: float = 0.0
    """When it was last connected."""

    def look(self) -> None:
        """Find out what has become of the connection."""
        if self.line is None:
            return
        code = self.line.code
        self.is_joined = self.is_joined or code == self.qos
        if code is not None and code >= REFUSED:
            self.line.end()  # no router leads the set (docs/mqtt.md)
        if not self.line.is_over:
            self.since = self.walk.bench.now
            return
        was_sent_away = not self.line.is_dead
        self.line = None
        if was_sent_away or not self.expiry:
            self.walk.note(f"{self.name} is over")
            self.walk.members.remove(self)

    @property
    def is_sure(self) -> bool:
        """Whether the mesh has promised that it is a member."""
        is_away = self.line is None and self.walk.bench.now >= self.since + self.expiry
        return self.is_joined and not is_away


@define(eq=False)
class Receipt:
    line: MemberLine
    is_answered: bool = False


@define(eq=False)
class Message:
    era: int
    """The era of the group in which it was published; 0 if it was published outside of all eras."""
    router: str
    is_accepted: bool = False
    receipts: list[Receipt] = field(factory=list)


class SharedJudge:
    """Keeps the account of messages. An *era* of the group begins when all routers are in contact and know a member
    of the group, and ends when no member is certain to be there. The group is promised each message of an era that its
    publisher has read as accepted, as long as the era lasts."""

    def __init__(self, walk: "SharedWalk") -> None:
        self._walk = walk
        self.messages: dict[bytes, Message] = {}
        self._eras = 0
        self.era = 0

    def look(self) -> None:
        if not any(member.is_sure for member in self._walk.members):
            self.era = 0

    def is_known(self) -> None:
        """All routers know all members."""
        self.look()
        for member in self._walk.members:
            member.is_known = member.is_joined and member.line is not None
        if not self.era and any(member.is_sure for member in self._walk.members):
            self._eras += 1
            self.era = self._eras

    def gets(self, payload: bytes, line: MemberLine) -> None:
        self._walk.note(f"{line.member.name} at {line.router.name} gets {payload!r}")
        receipts = self.messages[payload].receipts
        if receipts and not self._may_come_again(receipts[-1], line):
            first = receipts[-1].line
            raise SharedViolation(f"{payload!r} came to {first.member.name}, which answered, and to {line.member.name}")
        receipts.append(Receipt(line))

    def _may_come_again(self, former: Receipt, line: MemberLine) -> bool:
        """Whether the next receipt is allowed: the former member has not answered, its router may have died with the
        answer, or the member has moved (docs/mqtt.md)."""
        has_moved = former.line.member is line.member and former.line.router is not line.router
        return not former.is_answered or former.line.is_dead or has_moved

    def answers(self, payload: bytes, line: MemberLine) -> None:
        for receipt in self.messages[payload].receipts:
            if receipt.line is line:
                receipt.is_answered = True

    def check_none_lost(self) -> None:
        for payload, message in self.messages.items():
            if message.is_accepted and message.era and message.era == self.era and not message.receipts:
                raise SharedViolation(f"{payload!r} from router {message.router} was accepted, and no member got it")


@define(eq=False)
class Writer(Line):
    """A client that publishes, and answers its router. It ends with its router."""

    walk: "SharedWalk" = field(kw_only=True)
    sent: dict[int, bytes] = field(factory=dict)

    def hears(self, data: bytes) -> None:
        super().hears(data)
        for heard in self.heard:
            if heard.kind in (PacketKind.PUBACK, PacketKind.PUBREC) and heard.identifier in self.sent:
                payload = self.sent.pop(heard.identifier)
                self.walk.judge.messages[payload].is_accepted = heard.reason < 0x80
                self.walk.note(f"{payload!r} is accepted" if heard.reason < 0x80 else f"{payload!r} is refused")
                if heard.kind is PacketKind.PUBREC:
                    self._answers(PacketKind.PUBREL, heard.identifier)
        self.heard = [heard for heard in self.heard if heard.kind is PacketKind.CONNACK]

    def begin(self, name: str) -> None:
        """Connect, with a session: otherwise a contact that is lost ends the life of the writer (protocol 10)."""
        self.say(by_hand.connect(name, found={"session-expiry-interval": EXPIRY_S}))

    def publish(self, payload: bytes, qos: int) -> None:
        identifier = len(self.walk.judge.messages) + 1
        self.walk.judge.messages[payload] = Message(self.walk.judge.era, self.router.name)
        self.sent[identifier] = payload
        self.say(by_hand.publish(TOPIC, payload, qos, identifier))


class SharedWalk:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.trace: list[str] = []
        self.bench = SharedBench(*"abc")
        self.members: list[Member] = []
        self.judge = SharedJudge(self)
        self._writers: dict[str, Writer] = {}
        self._count = 0
        self._kills = self.dice.random() < 0.6
        self._parts = self.dice.random() < 0.7
        self._apart_since = 0.0

    def note(self, text: str) -> None:
        self.trace.append(f"{self.bench.now:7.2f} {text}")

    def _connect(self, member: Member, router: str, *, clean: bool) -> None:
        where = self.bench.routers[router], self.bench.edges[router]
        member.line = MemberLine(*where, acks=member.acks, member=member)
        found = {"session-expiry-interval": member.expiry} if member.expiry else {}
        member.line.say(by_hand.connect(member.name, clean=clean, found=found))

    # events

    def _some_router(self) -> str | None:
        """A router that lets clients in; None if there is none. A router lets no client in before it has heard the
        others."""
        booted = [name for name, router in sorted(self.bench.routers.items()) if router.node.topic.booted]
        return self.dice.choice(booted) if booted else None

    def _somebody_joins(self) -> None:
        if (router := self._some_router()) is None:
            return
        name, dice = f"m{self._count}", self.dice
        self._count += 1
        member = Member(self, name, dice.choice((0, EXPIRY_S)), dice.choice((1, 2)), dice.random() < 0.8)
        how = "answers" if member.acks else "is mute"
        self.note(f"{name} joins at {router}, qos {member.qos}, expiry {member.expiry}, {how}")
        self.members.append(member)
        self._connect(member, router, clean=True)
        if member.line is not None and not member.line.is_over:
            member.line.say(by_hand.subscribe(1, [(SHARED, member.qos)]))

    def _somebody_leaves(self) -> None:
        if there := [member for member in self.members if member.line is not None and not member.line.is_over]:
            member = self.dice.choice(there)
            assert member.line is not None
            how = self.dice.choice(("is cut off", "is cut off", "says goodbye", "unsubscribes"))
            self.note(f"{member.name} {how}")
            line = member.line
            if how == "unsubscribes":
                line.say(by_hand.unsubscribe(2, [SHARED]))
            elif how == "says goodbye":
                line.say(by_hand.disconnect(0, {"session-expiry-interval": 0}))
            line.end()
            member.line = None
            if how != "is cut off" or not member.expiry:
                self.members.remove(member)

    def _somebody_comes_back(self) -> None:
        away, router = [member for member in self.members if member.line is None], self._some_router()
        if away and router is not None:
            member = self.dice.choice(away)
            self.note(f"{member.name} comes back at {router}")
            is_promised = member.is_sure and member.is_known
            self._connect(member, router, clean=False)
            assert member.line is not None
            if member.line.is_over:
                return
            if not member.line.is_present:
                self.note(f"{member.name} has no session")
                if is_promised:
                    raise SharedViolation(f"{member.name} came back in time, and has no session")
                member.is_joined = member.is_known = False
            if not member.is_joined:
                member.line.say(by_hand.subscribe(1, [(SHARED, member.qos)]))

    def _somebody_publishes(self) -> None:
        if (router := self._some_router()) is None:
            return
        writer = self._writers.get(router)
        if writer is None or writer.is_over:
            writer = Writer(self.bench.routers[router], self.bench.edges[router], walk=self)
            self._writers[router] = writer
            writer.begin(f"writer {router} {len(self.judge.messages)}")
        for _ in range(self.dice.choice((1, 1, 3))):
            payload = b"%d" % len(self.judge.messages)
            self.note(f"{payload!r} is published at {router}")
            writer.publish(payload, self.dice.choice((1, 2)))

    def _some_contact_is_lost(self) -> None:
        if len(self.bench.routers) < 2:
            return
        here, there = self.dice.sample(sorted(self.bench.routers), 2)
        led = [name for name, router in self.bench.routers.items() if SET in router.sets.led]
        if led and self.dice.random() < 0.6:
            here = led[0]
            there = self.dice.choice([name for name in sorted(self.bench.routers) if name != here])
        if self._parts and frozenset((here, there)) not in self.bench._parted:
            self.note(f"{here} and {there} lose their contact")
            self.bench.part(here, there)

    def _contacts_are_made(self) -> None:
        there = self.bench.routers
        for pair in sorted(map(sorted, self.bench._parted)):
            if {*pair} <= there.keys():
                self.note(f"{pair} are in contact again")
                self.bench.part(*pair)

    def _some_router_dies(self) -> None:
        if not self._kills or len(self.bench.routers) < 3:
            return
        dying = sorted(self.bench.routers)
        if self.dice.random() < 0.8:
            led = [name for name, router in self.bench.routers.items() if SET in router.sets.led]
            dying = led[:1] if led and self.dice.random() < 0.5 else [self.dice.choice(dying)]
        self.note(f"{', '.join(dying)} are killed")
        for name in dying:
            self.bench.kill(name)
        if self.dice.random() < 0.5:
            for other, router in self.bench.routers.items():
                for name in dying:
                    with self.bench.acting(self.bench.routers[other]):
                        router.node.refused(name)
        if not self.bench.routers:
            self._routers_boot()

    def _routers_boot(self) -> None:
        if dead := [name for name in self.bench.names if name not in self.bench.routers]:
            self.note(f"{', '.join(dead)} start again")
            self.bench.boot(*dead)

    def _time_passes(self) -> None:
        seconds = self.dice.choice((0.1, 0.5, 1.0, 3.0))
        self.note(f"{seconds} s pass")
        self.bench.time(seconds)

    def _wires_are_slow(self) -> None:
        self.bench.is_slow = True

    def _all_arrives(self) -> None:
        self.bench.is_slow = False
        self.bench.flow()

    def _something_arrives(self) -> None:
        for here, there in list(self.bench.wires):
            if self.dice.random() < 0.5 and there in self.bench.routers:
                self.bench.bring(here, there, self.dice.randint(1, 3))
        self.bench.flow()

    def _rest(self, seconds: float) -> None:
        """All routers run, are in contact, and hear everything."""
        self._routers_boot()
        self._all_arrives()
        self._contacts_are_made()
        self.bench.time(seconds)
        self._look()
        self.judge.is_known()

    def _look(self) -> None:
        for member in list(self.members):
            member.look()
        self.judge.look()

    def play(self) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (3, self._somebody_joins), (3, self._somebody_leaves), (4, self._somebody_comes_back),
            (5, self._somebody_publishes), (2, self._some_contact_is_lost), (2, self._contacts_are_made),
            (1, self._some_router_dies), (1, self._routers_boot), (4, self._time_passes), (1, self._wires_are_slow),
            (1, self._all_arrives), (3, self._something_arrives), (1, lambda: self._rest(5.0)),
        ]  # fmt: skip
        for _ in range(STEPS):
            self.dice.choices([action for _, action in actions], [weight for weight, _ in actions])[0]()
            self._look()
            if len(self.bench.routers) == len(self.bench.names) and not self.bench._parted:
                self._apart_since = self.bench.now
            elif self.bench.now > self._apart_since + APART_S:
                self._rest(5.0)
        self._finish()

    def _finish(self) -> None:
        self.note("all comes to its end")
        self._rest(REST_S)
        for member in list(self.members):
            if member.line is None:
                self.note(f"{member.name} stays away")
                self.members.remove(member)
            elif not member.is_joined:
                raise SharedViolation(f"{member.name} has no SUBACK")
        self._mute_members_leave()
        self.judge.check_none_lost()
        queues = self.bench.queues()
        if queues != [QUEUE] * bool(self.members):
            raise SharedViolation(f"the group has {len(self.members)} members, and the set has {queues}")
        self._publish_last()
        for member in self.members:
            assert member.line is not None
            member.line.end()
        for writer in self._writers.values():
            writer.end()
        self.bench.time(FORGOTTEN_S)
        self._check_forgotten()

    def _mute_members_leave(self) -> None:
        """The members that do not answer leave, so that others get their messages. A router may even have kept such a
        message: it waits until the member has released an identifier of its former router (docs/mqtt.md)."""
        for member in [member for member in self.members if not member.acks]:
            assert member.line is not None
            self.note(f"{member.name}, which is mute, says goodbye")
            member.line.say(by_hand.disconnect(0, {"session-expiry-interval": 0}))
            member.line.end()
            self.members.remove(member)
        self.bench.time(5.0)
        self._look()

    def _publish_last(self) -> None:
        """Publish a few messages while all members are there. Each of them reaches one member."""
        writer = Writer(self.bench.routers["c"], self.bench.edges["c"], walk=self)
        writer.begin("last writer")
        for payload in LAST:
            writer.publish(payload, 2)
        self._writers["last"] = writer
        for payload in LAST:
            if len(self.judge.messages[payload].receipts) != bool(self.members):
                raise SharedViolation(f"{payload!r} came to {len(self.judge.messages[payload].receipts)} members")

    def _check_forgotten(self) -> None:
        names = {f"m{number}" for number in range(self._count)}
        for name, router in self.bench.routers.items():
            if left := [queue.name for queue in router.sets.state(SET) if "/share/" in queue.name]:
                raise SharedViolation(f"router {name} still has {left}")
            entries = [entry for entry in router.node.topic.directory.entries() if entry.live]
            if left := [
                str(entry) for entry in entries if entry.identity.container in names or TOPIC in entry.identity.address
            ]:
                raise SharedViolation(f"router {name} still has {left}")


def play(seed: int) -> list[str]:
    """Play the walk. Returns its trace. Raises SharedViolation with the trace."""
    walk = SharedWalk(seed)
    try:
        walk.play()
    except AssertionError as error:
        raise SharedViolation("\n".join([*walk.trace, f"seed {seed}: {error}"])) from error
    return walk.trace


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.router.mqtt.shared_walk", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1, help="play so many seeds from this one on")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    collect_seldom()
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.count):
        try:
            trace = play(seed)
            print("\n".join(trace) if asked.trace else "", end="")
        except SharedViolation as violation:
            failed += 1
            print(violation if asked.trace else str(violation).splitlines()[-1], flush=True)
    print(f"{asked.count} seeds, {failed} failed")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
