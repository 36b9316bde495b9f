"""The links of the sets that one router leads (protocol 14). It attaches them when it leads, and suspends them when it
leads no more."""

import attrs

from topic.ends.end import EndNode
from topic.queues.ingress import Ingress, term_clock
from topic.queues.sets import ReplicaSets


@attrs.frozen(slots=True)
class _Led:
    """The links of a set while this router leads it, in one term."""

    since: tuple[int, int]
    """Life and term."""
    ingress: Ingress


class SetLeaders:
    """The sets that one router leads. `follow` is to be called after each flush of the sets."""

    def __init__(self, node: EndNode, sets: ReplicaSets) -> None:
        self._node = node
        self._sets = sets
        self._led: dict[str, _Led] = {}

    def follow(self) -> None:
        """Attach links of sets that this router leads now, suspend links of sets that it leads no more, and give the
        links the answers that were decided."""
        for name in self._sets.set_map.plans:
            ready, led = self._sets.ready(name), self._led.get(name)
            decided = self._sets.take_decided(name)
            if led is not None and led.since != ready:
                self._leave(name, led)
                led = None
            if led is None and ready is not None:
                self._lead(name, ready)
            elif led is not None:
                for index, answer in decided:
                    led.ingress.decided(index, answer)
                led.ingress.go_on()

    def _lead(self, name: str, since: tuple[int, int]) -> None:
        ingress = Ingress(self._node, name, self._sets)
        self._led[name] = _Led(since, ingress)
        ingress.come(self._sets.state(name).messages.unsettled, term_clock(*since, 0), self._node.now())

    def _leave(self, name: str, led: _Led) -> None:
        del self._led[name]
        led.ingress.leave(self._node.now(), closed=False)
