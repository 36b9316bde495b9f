"""Whole routers with queues, whose MQTT clients share subscriptions (protocol 14.22)."""

from router.mesh.config import Limits
from router.security.rules import EVERYTHING
from tests.fuzz.mesh import MAX_MESSAGE, GoodClient
from tests.fuzz.queues import ELECTED_S, SET, QueueMesh, QueueRouter
from tests.router.mqtt.bench import TOPIC, MqttBench
from tests.router.mqtt.mortal import RESERVED_US
from topic.queues.operations import QueueId

SHARED = f"$share/g/{TOPIC}"
QUEUE = "queue/_temporary/share/g/topic/t"


class SharedBench(MqttBench, QueueMesh):
    """A mesh whose routers speak MQTT and have queues."""

    mute = ""
    """The router whose payloads to others wait."""

    def __init__(self, *names: str) -> None:
        QueueMesh.__init__(self, *names)
        self._limits, self.rule = Limits(max_message=MAX_MESSAGE), EVERYTHING
        self.edges = {name: self.edge(router) for name, router in self.routers.items()}
        self._stores = {name: router.store for name, router in self.routers.items()}
        self._lives = dict.fromkeys(names, 1)

    def flow(self) -> None:
        moves = True
        while self.mute and moves:
            moves = self.work()
            for here, there in self.wires:
                if here != self.mute and self.wires[here, there]:
                    self.bring(here, there)
                    moves = True
        if not self.mute:
            super().flow()

    @property
    def leader(self) -> str:
        return next(name for name, router in self.routers.items() if SET in router.sets.led)

    def cut(self, name: str) -> None:
        """Cut the router off from all others, or bring it back."""
        for other in self.routers:
            if other != name:
                self.part(name, other)

    def kill(self, name: str) -> None:
        """End the router. Its stores stay."""
        for guest in self.routers[name].guests:
            if isinstance(guest, GoodClient):
                guest.engine.release()
        self.lose(name)

    def boot(self, *names: str, apart: str = "") -> None:
        """Start routers again that have ended. They are not in contact with the router `apart`."""
        self.wall_us += RESERVED_US
        for name in names:
            self._lives[name] += 1
            router = self.routers[name] = QueueRouter(self, name, self._lives[name], self._stores[name])
            self.edges[name] = self.edge(router)
            for other in self.routers:
                if other not in (name, apart) and frozenset((name, other)) in self._parted:
                    self.part(name, other)

    def restart(self, *names: str, apart: str) -> None:
        """Let these routers stop, and start again. They are not in contact with one other router."""
        for name in names:
            self.kill(name)
        self.boot(*names, apart=apart)
        self.time(ELECTED_S)

    def queues(self) -> list[str]:
        """The queues of groups, at the router that leads the set."""
        return [queue.name for queue in self.routers[self.leader].sets.state(SET) if "/share/" in queue.name]

    def queue(self) -> QueueId:
        """The id of the only queue of a group."""
        [found] = [queue for queue in self.routers[self.leader].sets.state(SET) if "/share/" in queue.name]
        return found.id
