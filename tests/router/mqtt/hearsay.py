"""Which routers may not have heard of a link, by what became of their contacts: whatever they say themselves.

Who was in contact with the link's router as that answered has heard of it, and knows it for as long as it runs.
"""

from collections import defaultdict

from tests.router.mqtt.mortal import MortalBench
from tests.router.mqtt.roles import Reader


class Hearsay:
    def __init__(self, bench: MortalBench) -> None:
        self._bench = bench
        self._deaf: dict[Reader, set[str]] = defaultdict(set)
        self._left_behind: set[Reader] = set()
        self._booted: dict[str, int] = {}
        """By router: when it was started again last, in us."""

    def is_answered(self, reader: Reader, here: str) -> None:
        """A subscription is, by this router."""
        self._deaf[reader].update(name for name in self._bench.names if not self._bench.are_in_contact(here, name))

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

    def may_be_deaf(self, reader: Reader, name: str) -> bool:
        return name in self._deaf[reader]

    def may_have_missed(self, name: str, here: str, since_us: int) -> bool:
        """What has been said at another router, `here`, since then."""
        return self._booted.get(name, 0) >= since_us or self._bench.were_apart(name, here, since_us)
