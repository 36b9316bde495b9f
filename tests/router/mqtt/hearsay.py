"""Which routers may not have heard of a link, by what became of their contacts: whatever they say themselves.

Who was in contact with the link's router as that answered has heard of it, and knows it for as long as it runs.
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
        """By router: when it was started again last, in us."""
        self._read_on: dict[int, tuple[Line, int]] = {}
        """By number of a message: where it was read last, and when in us."""
        self._been: dict[Client, list[tuple[int, str]]] = defaultdict(list)
        """Where it has been, and since when in us."""
        self._published_again: set[int] = set()
        """At a router that had not heard of the one before."""
        self._waits: dict[tuple[int, str], float] = {}
        """By number, and router: since when, as that has not heard of its writer, and is not in contact with all."""

    # of subscriptions

    def is_answered(self, reader: Reader, here: str) -> None:
        """A subscription is, by this router: that has had it since it took the session over, if it is said again."""
        since_us = max((came for came, name in self._been[reader.client] if name == here), default=0)
        self._deaf[reader].update(name for name in self._bench.names if not self._is_told(name, here, since_us))

    def has_ended(self, reader: Reader) -> None:
        """Its session: what it subscribes to from now on is heard of anew."""
        self._deaf[reader].clear()
        self._left_behind.discard(reader)

    def goes_on(self, reader: Reader, here: str) -> None:
        """Its session does, at a router that may not have all of it: of what expires elsewhere it is not told."""
        if here in self._deaf[reader]:
            self._left_behind.add(reader)

    def may_be_left_behind(self, reader: Reader) -> bool:
        return reader in self._left_behind

    def boots(self, name: str) -> None:
        """It forgets where messages were read. Who is subscribed it hears again before it takes clients."""
        self._booted[name] = self._bench.wall_us

    def may_lack(self, reader: Reader, name: str) -> bool:
        """A subscription of its session, at this router: it has not heard of that, or has seen it expire."""
        return name in self._deaf[reader] or reader in self._left_behind

    # of where messages were read

    def connects(self, client: Client, name: str) -> None:
        self._been[client].append((self._bench.wall_us, name))

    def is_read(self, line: Line, number: int, packet: PublishPacket) -> None:
        """Where nobody has heard of where it was read before, it is taken for another one, from there on; or waits, as
        a copy at QoS 2 of a session that goes on."""
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
        """What has not waited for as long as it may was heard of."""
        if not self._has_waited(self._waits.get((number, line.router.name), -inf)):
            del self._waits[number, line.router.name]

    def may_be_another(self, number: int) -> bool:
        """What is sent again is, for the mesh."""
        has_waited = any(self._has_waited(since) for (one, _), since in self._waits.items() if one == number)
        return has_waited or number in self._published_again

    def _has_waited(self, since: float) -> bool:
        return self._bench.now >= since + SETTINGS.boot_wait

    def _is_told(self, name: str, here: str, since_us: int) -> bool:
        """All that was said at another router, `here`, since then, on one contact."""
        return self._bench.are_in_contact(here, name) and not self._bench.were_apart(name, here, since_us)

    def _may_have_missed(self, name: str, here: str, since_us: int) -> bool:
        """What has been said at another router, `here`, since then."""
        return self._booted.get(name, 0) >= since_us or self._bench.were_apart(name, here, since_us)
