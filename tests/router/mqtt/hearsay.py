"""Derives from the contacts of routers which of them may not know a link, independently of what they say.

A router that was in contact with the link's router when this one answered knows the link, as long as it runs.
"""

from collections import defaultdict
from math import inf

from router.mqtt.format.packets import PublishPacket
from tests.fuzz.mesh import SETTINGS
from tests.router.mqtt.mortal import MortalBench
from tests.router.mqtt.roles import Reader
from tests.router.mqtt.sessions import Client, Line
from topic.directory.entry import Role


class Hearsay:
    def __init__(self, bench: MortalBench) -> None:
        self._bench = bench
        self._deaf: dict[Reader, set[str]] = defaultdict(set)
        self._left_behind: set[Reader] = set()
        self._booted: dict[str, int] = {}
        """Keyed by router: when it last started again, in µs."""
        self._read_on: dict[int, tuple[Line, int]] = {}
        """Keyed by number of a message: the line on which it was last read, and when, in µs."""
        self._been: dict[Client, list[tuple[int, str]]] = defaultdict(list)
        """Keyed by client: since when it has been where, in µs."""
        self._published_again: set[int] = set()
        """Messages that were published again at a router that did not know the former one."""
        self._waits: dict[tuple[int, str], float] = {}
        """Keyed by number and router: since when it waits there, as the router does not know its writer and is not in
        contact with all.
        """

    # subscriptions

    def is_answered(self, reader: Reader, here: str) -> None:
        """This router answers a subscription. For a repeated one, it has had the subscription since it took the session
        over.
        """
        since_us = max((came for came, name in self._been[reader.client] if name == here), default=0)
        self._deaf[reader].update(name for name in self._bench.names if not self._is_told(name, here, since_us))

    def has_ended(self, reader: Reader) -> None:
        """The reader's session has ended: routers learn anew what it subscribes to from now on."""
        self._deaf[reader].clear()
        self._left_behind.discard(reader)

    def goes_on(self, reader: Reader, here: str) -> None:
        """The reader's session continues at a router that may lack a part of it: nobody tells it what expires
        elsewhere.
        """
        if here in self._deaf[reader]:
            self._left_behind.add(reader)

    def may_be_left_behind(self, reader: Reader) -> bool:
        return reader in self._left_behind

    def boots(self, name: str) -> None:
        """The router forgets where messages were read. It learns the subscriptions again before it takes clients."""
        self._booted[name] = self._bench.wall_us

    def may_lack(self, reader: Reader, name: str) -> bool:
        """Whether this router may lack a subscription of the reader's session: it does not know it, or has seen it
        expire.
        """
        return name in self._deaf[reader] or reader in self._left_behind

    # where messages were read

    def connects(self, client: Client, name: str) -> None:
        self._been[client].append((self._bench.wall_us, name))

    def is_read(self, line: Line, number: int, packet: PublishPacket) -> None:
        """A router reads a message. If it does not know where the message was read before, the message counts as
        another one from then on; or it waits, as a copy at QoS 2 of a continued session."""
        former, since_us = self._read_on.get(number, (line, 0))
        self._read_on[number] = line, self._bench.wall_us
        here, there = (at.knows(line.client, packet.topic, Role.PUBLISHER) for at in (line, former))
        home = former.router.name, former.router.incarnation
        is_known = here is not None and here.owner == home and (there is None or there.epoch <= here.epoch)
        places = [line.router.name, *(name for came, name in self._been[line.client] if came >= since_us)]
        may_be = any(self._may_have_missed(name, former.router.name, since_us) for name in places)
        session, is_copy = line.edge.sessions.get(("", line.client.name)), packet.dup and packet.qos == 2
        waits = here is None and not line.router.node.topic.directory.complete
        if waits and is_copy and session is not None and session.resumes:
            self._waits.setdefault((number, line.router.name), self._bench.now)
        elif may_be and former.router is not line.router and not is_known:
            self._published_again.add(number)

    def is_accepted(self, line: Line, number: int) -> None:
        """The router accepts the message. If it has not waited for the longest time, the router knows its former router
        now.
        """
        if not self._has_waited(self._waits.get((number, line.router.name), -inf)):
            del self._waits[number, line.router.name]

    def may_be_another(self, number: int) -> bool:
        """Whether the mesh may consider a repeated message another one."""
        has_waited = any(self._has_waited(since) for (one, _), since in self._waits.items() if one == number)
        return has_waited or number in self._published_again

    def _has_waited(self, since: float) -> bool:
        return self._bench.now >= since + SETTINGS.boot_wait

    def _is_told(self, name: str, here: str, since_us: int) -> bool:
        """Whether a router has all that `here` has sent since then, in one contact."""
        return self._bench.are_in_contact(here, name) and not self._bench.were_apart(name, here, since_us)

    def _may_have_missed(self, name: str, here: str, since_us: int) -> bool:
        """Whether a router may lack something that `here` has sent since then."""
        return self._booted.get(name, 0) >= since_us or self._bench.were_apart(name, here, since_us)
