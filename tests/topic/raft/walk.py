"""Random walks over a set of replicas: a seed draws what networks, disks, kernels and operators do to it.

python -m tests.topic.raft.walk SEED [--count N] [--trace]
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from random import Random

import attrs

from tests.garbage import collect_seldom
from tests.topic.raft.cluster import Cluster, Host
from topic.raft.errors import BusyError, NotLeaderError
from topic.raft.limits import RaftLimits
from topic.raft.raft import Raft, RaftRole

STEPS = 400


class Walk:
    """One seed: which faults occur, how often, and in which order."""

    def __init__(self, seed: int, *, steps: int = STEPS) -> None:
        self.random = Random(seed)
        draw = self.random.random
        count = self.random.choice((1, 2, 3, 3, 3, 3, 4, 5))
        spare = self.random.choice((0, 0, 1))
        names = "abcdef"[: count + spare]
        window = self.random.choice((1, 200, 1 << 20))
        unstored = self.random.choice((500, 1 << 20))
        self.digests = self.random.choice((0, 4, 4, 11))
        """After how many entries replicas compare their states. 0: never, and no entry is dropped."""
        slow = self.random.choice((0.0, 0.5))
        self.cluster = Cluster(
            names,
            ring=names[:count],
            draw=draw,
            limits=RaftLimits(window=window, unstored=unstored, told=(0.0, 0.05)[seed % 2]),
            digests=self.digests,
            compacts=lambda: self.random.random() >= slow,
        )
        self.steps = steps
        self.proposed = 0
        self.losses = 0
        """How many disks may be lost that may belong to one majority."""
        self._operations: list[tuple[Callable[[], None], float]] = [
            (self._deliver, 12.0),
            (self._finish, 5.0),
            (self._tick, 1.0),
            (self._propose, 2.0),
            (self._meet, 1.5),
            (self._lose, self._rate(0.6)),
            (self._crash, self._rate(0.3)),
            (self._start, 1.0),
            (self._replace_disk, self._rate(0.05)),
            (self._rot, self._rate(0.05) if self.digests else 0.0),
            (self._hand_over, self._rate(0.3)),
            (self._hang, self._rate(0.2)),
            (self._swap_ring, self._rate(0.1)),
            (self._rest, self._rate(0.1)),
        ]
        self.hanging: set[str] = set()

    def _rate(self, most: float) -> float:
        return self.random.choice((0.0, most * self.random.random(), most))

    def play(self) -> None:
        self.cluster.meet_all()
        if self.random.random() < 0.8:
            self.cluster.settle()
        operations, weights = zip(*self._operations, strict=True)
        for _ in range(self.steps):
            self.random.choices(operations, weights)[0]()
            self.cluster.check_matching()
        self.heal()

    # what may happen

    def _living(self) -> list[Host]:
        return [replica for replica in self.cluster.replicas.values() if replica.raft is not None]

    def _rafts(self) -> list[Raft]:
        return [replica.raft for replica in self._living() if replica.raft is not None]

    def _one(self, of: list[Host]) -> Host | None:
        return self.random.choice(of) if of else None

    def _deliver(self) -> None:
        for _ in range(self.random.choice((1, 1, 2, 5))):
            if waiting := self.cluster.waiting():
                self.cluster.deliver(*self.random.choice(waiting))

    def _finish(self) -> None:
        if replica := self._one([r for r in self._living() if r.disk.writes and r.router not in self.hanging]):
            self.cluster.finish(replica.router)

    def _tick(self) -> None:
        if due := self.cluster.next_deadline():
            if self.random.random() < 0.7:
                self.cluster.tick(due[1])
            elif (replica := self._one(self._living())) and replica.raft and replica.raft.deadline < float("inf"):
                self.cluster.tick(replica.router)

    def _ask(self, what: Callable[[Raft], object]) -> None:
        leaders = self.cluster.leaders()
        if leaders:
            with suppress(BusyError, NotLeaderError, ValueError):
                self.cluster.do(self.random.choice(leaders), what)

    def _propose(self) -> None:
        self.proposed += 1
        self._ask(lambda raft: raft.propose([b"%d" % self.proposed] * self.random.choice((1, 1, 3))))

    def _hand_over(self) -> None:
        self._ask(lambda raft: raft.hand_over(self.random.choice(raft.log.configuration.voters), self.cluster.now))

    def _pair(self) -> tuple[str, str] | None:
        living = [replica.router for replica in self._living()]
        return tuple(self.random.sample(living, 2)) if len(living) > 1 else None  # type: ignore[return-value]

    def _meet(self) -> None:
        if (pair := self._pair()) and not all((self.cluster.sees(*pair), self.cluster.sees(*reversed(pair)))):
            self.cluster.meet(*pair)

    def _lose(self) -> None:
        if pair := self._pair():
            self.cluster.lose(*pair)
            if self.random.random() < 0.5:
                self.cluster.lose(*reversed(pair))

    def _crash(self) -> None:
        if replica := self._one(self._living()):
            self.cluster.crash(replica.router, self.random.choice((0, 1, 9)))
            self.hanging.discard(replica.router)

    def _start(self) -> None:
        if replica := self._one([r for r in self.cluster.replicas.values() if r.raft is None]):
            self.cluster.start(replica.router)

    def _replace_disk(self) -> None:
        """Replace a disk. At most a minority of the voters loses its disk before the set has mended itself."""
        if self._is_whole() and (replica := self._one(list(self.cluster.replicas.values()))):
            others = [r for r in self.cluster.replicas.values() if r is not replica]
            leader = next((r.raft for r in others if r.raft and r.raft.role is RaftRole.LEADER), None)
            if leader is not None and len(leader.log.configuration.voters) > 2:
                self.cluster.replace_disk(replica.router)
                self.hanging.discard(replica.router)

    def _is_whole(self) -> bool:
        """Whether all voters of the present leader have the stores that it knows, and no change of voters is open."""
        leaders = [raft for raft in self._rafts() if raft.leadership is not None]
        if len(leaders) != 1:
            return False
        raft, replicas = leaders[0], self.cluster.replicas
        assert raft.leadership is not None
        if not raft.leadership.may_configure or any(
            other.log.configured_at > raft.log.commit for other in self._rafts()
        ):
            return False
        voters = raft.log.configuration.voters
        return all(replicas[voter.router].disk.store == voter.store for voter in voters) and not self._rotten()

    def _rotten(self) -> list[str]:
        return [name for name, replica in self.cluster.replicas.items() if replica.state.rot]

    def _rot(self) -> None:
        """The state of a minority changes without a decision."""
        if self._is_whole() and (replica := self._one(self._living())):
            leader = next(raft for raft in self._rafts() if raft.leadership is not None)
            if len(leader.log.configuration.voters) > 2:
                replica.state = attrs.evolve(replica.state, rot=1)

    def _hang(self) -> None:
        if replica := self._one(self._living()):
            self.hanging ^= {replica.router}

    def _swap_ring(self) -> None:
        """An operator wants other voters."""
        self.cluster.set_ring(self.random.sample(list(self.cluster.replicas), len(self.cluster.ring)))

    def _rest(self) -> None:
        self.cluster.settle(hanging=tuple(self.hanging), seconds=1.0)

    # in the end

    def heal(self) -> None:
        """All routers run, are in contact, and have working disks: one leads, all apply the same entries, and a new
        entry is decided.
        """
        cluster = self.cluster
        self.hanging.clear()
        for name, replica in cluster.replicas.items():
            if replica.raft is None:
                cluster.start(name)
        cluster.meet_all()
        cluster.settle()
        assert not any(cluster.channels.values()), "messages are under way in a set at rest"
        leaders = cluster.leaders()
        assert len(leaders) == 1, f"{leaders} lead in the end"
        last = [b"last"] * (self.digests + 1)
        cluster.propose(leaders[0], *last)
        cluster.settle()
        leader = cluster.replicas[cluster.leaders()[0]]  # another one, if the state of the former leader was wrong
        assert leader.raft is not None
        assert [entry.data for entry in leader.applied if entry.data].count(b"last") == len(last), "nothing is decided"
        rotten = {member.router for member in leader.raft.log.configuration.members} & set(self._rotten())
        assert not rotten, f"{rotten} have another state, and nobody has noticed"
        for member in leader.raft.log.configuration.members:
            assert cluster.replicas[member.router].applied == leader.applied, (
                f"{member.router} has not applied the same"
            )
        members = leader.raft.log.configuration
        assert {member.router for member in members.voters} == {*members.ring}, "the voters are not those of the ring"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.topic.raft.walk", description="break a set of replicas from seeds"
    )
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1, help="how many seeds, from SEED on")
    parser.add_argument("--trace", action="store_true", help="print each message that arrives")
    arguments = parser.parse_args()
    collect_seldom()
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        walk = Walk(seed)
        try:
            walk.play()
        except AssertionError as broken:
            failed += 1
            print(f"python -m tests.topic.raft.walk {seed}: {broken}", flush=True)
        if arguments.trace:
            print("\n".join(walk.cluster.said))
    print(f"{arguments.count - failed} of {arguments.count} seeds hold")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
