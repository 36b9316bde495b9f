"""The links of the sets that one router leads (protocol 14): attached when it leads, suspended when it does no more."""

from collections.abc import Sequence

import attrs

from topic.ends.end import EndNode
from topic.queues.ingress import Ingress, fence_of
from topic.queues.proposals import Proposal
from topic.queues.sets import ReplicaSets


@attrs.frozen(slots=True)
class SetLog:
    """The log of one set (`topic.queues.ingress.Proposer`)."""

    sets: ReplicaSets
    name: str

    def propose(self, proposals: Sequence[Proposal]) -> int | None:
        return self.sets.propose(self.name, proposals)


@attrs.frozen(slots=True)
class _Led:
    """What there is while this router leads a set, in one term."""

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
        """Attach or leave links as this router leads sets or does no more, and tell the links what was decided."""
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
        ingress = Ingress(self._node, name, SetLog(self._sets, name))
        self._led[name] = _Led(since, ingress)
        ingress.come(self._sets.state(name).messages.unsettled, fence_of(*since, 0), self._node.now())

    def _leave(self, name: str, led: _Led) -> None:
        del self._led[name]
        led.ingress.leave(self._node.now(), closed=False)
