"""`python -m tests.bench.logged_router FOLDER ENTRIES SIZE SECONDS NAME TOPOLOGY …`: an ordinary router process that
keeps ENTRIES entries of SIZE bytes under way in each replica set that it leads.

The entries are no operations, so the sets store them, decide them, and do nothing. A while after it has begun to lead,
the router measures for SECONDS, and writes to NAME.json in FOLDER how many entries were decided, and how much
processor time the whole router took meanwhile. A router that leads no set measures its processor time, too.
"""

import json
import runpy
import sys
import time
from pathlib import Path
from typing import Final

import trio

from router.queues import replicas
from topic.queues.actions import Answered
from topic.queues.sets import ReplicaSets

WARM_S: Final = 5.0
"""Seconds from the start of the load to the start of the measurement."""
LOOK_S: Final = 0.05


class LoadedReplicas(replicas.RouterReplicas):
    folder: Path
    entries: int
    size: int
    seconds: float

    async def run(self) -> None:
        self._is_loading = False
        self._decided = 0
        self._of: dict[int, str] = {}
        """Number of a request -> its set."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super().run)
            nursery.start_soon(self._measure)

    @property
    def _sets(self) -> ReplicaSets:
        sets = self._owner.node.sets
        assert sets is not None
        return sets

    async def _measure(self) -> None:
        sets = self._sets
        while any(not requests.leader for requests in sets._requests.values()):
            await trio.sleep(LOOK_S)
        self._is_loading = True
        me = self._owner.node.name
        led = [name for name, requests in sets._requests.items() if requests.leader == me]
        for name in led:
            for _ in range(self.entries):
                self._propose(name)
        self._owner.step()
        await trio.sleep(WARM_S)
        began, spent, decided = time.monotonic(), time.process_time(), self._decided
        await trio.sleep(self.seconds)
        self._is_loading = False
        told = {
            "led": len(led),
            "seconds": time.monotonic() - began,
            "cpu_s": time.process_time() - spent,
            "decided": self._decided - decided,
        }
        (self.folder / f"{me}.json").write_text(json.dumps(told))

    def _propose(self, name: str) -> None:
        sets = self._sets
        number = next(sets._numbers)
        self._of[number] = name
        sets._requests[name].add(number, bytes(self.size), trio.current_time())
        sets._touched[name] = None

    def answered(self, answered: Answered) -> None:
        super().answered(answered)
        if (name := self._of.pop(answered.number, None)) is not None:
            self._decided += 1
            if self._is_loading:
                self._propose(name)


if __name__ == "__main__":
    LoadedReplicas.folder = Path(sys.argv.pop(1))
    LoadedReplicas.entries, LoadedReplicas.size = int(sys.argv.pop(1)), int(sys.argv.pop(1))
    LoadedReplicas.seconds = float(sys.argv.pop(1))
    replicas.RouterReplicas = LoadedReplicas  # type: ignore[misc]
    runpy.run_module("router", run_name="__main__", alter_sys=True)
