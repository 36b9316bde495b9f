"""The player of golden scenarios of a set: it reads a script's commands, and writes the replicas' messages at each.

python -m tests.topic.raft.script        # writes all traces anew

| command | what happens |
| --- | --- |
| `set a b c`, `set a b c of a b` | replicas of these routers start; the ring is all of them, or the second list |
| `led a b c` | the same, and the set has begun, and its first router leads: nothing of that is written |
| `meet`, `meet a b` | all that run are in contact; these two are |
| `cut a b` | both lose their contact; `cut a`: with everybody |
| `crash a`, `start a`, `replace a` | the process ends; it begins; the store is lost with it |
| `propose a x y` | these two entries are proposed at a |
| `finish a` | the oldest write of a's disk is done |
| `compact a` | the state of a is its snapshot, and the entries go |
| `hand a b` | a, which leads, hands over to b |
| `ring a b d` | an operator wants these voters; they stand behind the members in an entry |
| `recover a` | an operator goes on with a's store alone |
| `rest`, `rest but a` | everything arrives, disks write, time passes until nothing is left to do; a's disk hangs |
"""

from pathlib import Path

from tests.topic.raft.cluster import Cluster

SCENARIOS = sorted((Path(__file__).parent / "golden").glob("*.txt"))
PROMPT = "> "


def play(text: str) -> str:
    """The script with its present traces: they replace everything except commands, comments and empty lines."""
    player = Player()
    lines: list[str] = []
    for line in text.splitlines():
        if not line.startswith("  "):
            lines.append(line)
        if line.startswith(PROMPT):
            lines += [f"  {said}" for said in player.play(line.removeprefix(PROMPT).split())]
    return "".join(f"{line}\n" for line in lines)


class Player:
    """One set of replicas, and the commands of a script."""

    def __init__(self) -> None:
        self._cluster = Cluster(())

    def play(self, words: list[str]) -> list[str]:
        """Returns the messages that have arrived, and the changes of leaders, in order."""
        verb, *rest = words
        getattr(self, f"_{verb}")(*rest)
        said, self._cluster.said = self._cluster.said, []
        return said

    def _set(self, *routers: str) -> None:
        names, _, ring = " ".join(routers).partition(" of ")
        self._cluster = Cluster(names.split(), ring=ring.split())

    def _led(self, *routers: str) -> None:
        self._set(*routers)
        self._meet()
        self._rest()
        self._cluster.said.clear()

    def _meet(self, *pair: str) -> None:
        if pair:
            self._cluster.meet(*pair)
        else:
            self._cluster.meet_all()

    def _cut(self, router: str, *others: str) -> None:
        self._cluster.cut(router, *others)

    def _crash(self, router: str) -> None:
        self._cluster.crash(router)
        self._cluster.cut(router)

    def _replace(self, router: str) -> None:
        self._cluster.replace_disk(router)
        self._cluster.cut(router)

    def _start(self, router: str) -> None:
        self._cluster.start(router)

    def _propose(self, router: str, *data: str) -> None:
        self._cluster.propose(router, *(one.encode() for one in data))

    def _finish(self, router: str) -> None:
        self._cluster.finish(router)

    def _compact(self, router: str) -> None:
        self._cluster.compact(router)

    def _hand(self, router: str, to: str) -> None:
        self._cluster.hand_over(router, to)

    def _ring(self, *routers: str) -> None:
        self._cluster.set_ring(routers)

    def _recover(self, router: str) -> None:
        self._cluster.do(router, lambda raft: raft.recover(self._cluster.now))

    def _rest(self, *hanging: str) -> None:
        self._cluster.settle(hanging=hanging[1:])


if __name__ == "__main__":
    for path in SCENARIOS:
        path.write_text(play(path.read_text()))
