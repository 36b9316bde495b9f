"""The judge of bindings: queues that are bound to topics, and to patterns of topics (protocol 14.10).

1. When the attach of a binding is answered, all routers in contact with its leader know it.
2. No router forgets a binding that is there, unless it loses its store.
3. If the home of a message knows a binding, answered before, as the message comes, and knows it as it accepts the
   message, then the queue has the message, or had it. It has one copy.

Limit: a publisher goes to another home, which does not know the binding, as no router around it does.
"""

from typing import TYPE_CHECKING

from tests.simulation.wildcards import covers
from topic.identity import INSIDE, Epoch, link_name
from topic.queues.proposals import Enqueue

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.parties import Message
    from tests.simulation.queue_judge import Queues
    from tests.simulation.queues import QueueWorld
    from tests.simulation.router import Router

DecidedBinding = tuple[str, str, str, bytes]
"""Of a binding: the set, the queue, the address to which the queue is bound, and the key."""


class BoundQueues:
    def __init__(self, judge: "Judge", queues: "Queues") -> None:
        self._judge = judge
        self._queues = queues
        self.world: QueueWorld | None = None
        self._names: dict[bytes, bytes] = {}
        """Key of a binding -> name of its link."""
        self._answered: set[bytes] = set()
        """Keys of bindings whose attach was answered at the router of some leader."""
        self._checked: set[tuple[bytes, Epoch | None]] = set()
        """Attaches of bindings that were checked."""
        self._known: dict[tuple[str, int], set[bytes]] = {}
        """Keyed by router and incarnation: the keys of the bindings that it knows."""
        self._promised: dict[bytes, list[tuple[str, str, bytes]]] = {}
        """Keyed by message: set, queue and key of each binding that has to get it."""
        self._came_by: dict[tuple[str, bytes], list[bytes]] = {}
        """Keyed by queue and message: the keys of the bindings by which it came."""
        self._listed: tuple[object, list[DecidedBinding]] = None, []
        """The decided bindings, and the state of the logs from which they were read."""

    def _all(self) -> list[DecidedBinding]:
        """The decided bindings, except those of sets that may have lost entries."""
        if self.world is None or not self.world.bound:
            return []
        seen = self._queues.logs.changes, [self._queues.is_lost(name) for name in self.world.sets]
        if self._listed[0] != seen:
            self._listed = seen, self._list(self.world.sets)
        return self._listed[1]

    def _list(self, sets: list[str]) -> list[DecidedBinding]:
        found: list[DecidedBinding] = []
        for name in sets:
            state = self._queues.logs.state(name)
            for binding in state.bindings if not self._queues.is_lost(name) else ():
                queue = state.name_of(binding.queue)
                assert queue is not None
                self._names.setdefault(binding.key, link_name(binding.link(name, queue)))
                found.append((name, queue, binding.address, binding.key))
        return found

    def _knows(self, router: "Router", key: bytes) -> bool:
        entry = router.topic.directory.subscriber(self._names[key])
        return entry is not None and entry.live

    # what routers know

    def watch(self, router: "Router") -> None:
        """Check the bindings after each step of a router."""
        bindings = self._all()
        if not bindings:
            return
        known = self._known.setdefault((router.name, router.incarnation), set())
        for name, queue, address, key in bindings:
            if self._knows(router, key):
                known.add(key)
            else:
                label = f"{queue} on {address} of {name}"
                self._judge.check(key not in known, f"14.10 forgotten: {label} by {router.name}")
        leaders = router.node._leaders
        for led in leaders.led.values() if leaders is not None else ():
            for key, end in led.bound.items():
                if end.is_answered and (key, end.epoch) not in self._checked and key in self._names:
                    self._checked.add((key, end.epoch))
                    self._check_told(router, key, f"{end.identity.link} on {end.identity.address}")

    def _check_told(self, leader: "Router", key: bytes, label: str) -> None:
        if all(other != key for *_, other in self._all()):
            return  # the binding is gone
        for router in self._judge.termini.around(leader):
            self._judge.check(self._knows(router, key), f"14.10 joined: {label} is answered, unknown at {router.name}")
        self._answered.add(key)

    def boots(self, router: "Router", former: int, *, store: bool) -> None:
        """A router has started again. If it has its store, it knows the bindings that it knew."""
        known = self._known.get((router.name, former), set()) if store else set[bytes]()
        for name, queue, address, key in self._all() if known else ():
            is_known = key not in known or self._knows(router, key)
            self._judge.check(is_known, f"14.10 store: {router.name} has forgotten {queue} on {address} of {name}")

    # messages

    def received(self, home: "Router", message: "Message") -> None:
        """A router gets the message for the first time."""
        address = message.sent_on.client.identity.address
        if not address.startswith(INSIDE):
            self._promised[message.text] = [
                (name, queue, key)
                for name, queue, bound_to, key in self._all()
                if covers(bound_to, address) and key in self._answered
                if self._knows(home, key)
                if message.key not in self._queues.logs.state(name).messages.unsettled.get(key, ())
            ]

    def accepted(self, home: "Router", message: "Message") -> None:
        """A home answers its publisher with accepted."""
        there = {key for *_, key in self._all()}
        for name, queue, key in self._promised.get(message.text, ()):
            if key not in there or message.anew:
                continue
            label = f"{message.text.decode()} is accepted, and was never in {queue} of {name}"
            copy = self._queues.rules[queue].messages.get(message.text)
            has_it = copy is not None and copy.enqueued > 0
            if not has_it and not self._knows(home, key):
                self._judge.note("judge", f"limit: {label}: {home.name} does not know that it is bound")
                continue
            self._judge.check(has_it, f"14.10 accepted: {label}")

    def comes(self, set_: str, queue: str, message: "Message", asked: Enqueue) -> bool:
        """A message is in a queue to which it came by a binding. Returns whether it may have come before."""
        state, address = self._queues.logs.state(set_), message.sent_on.client.identity.address
        binding, known = state.bindings.get(asked.binding), state.get(queue)
        is_bound = binding is not None and known is not None and binding.queue == known.id
        is_of = binding is not None and is_bound and covers(binding.address, address)
        self._queues.check_of_set(set_, is_of, f"14.10 bound: {message.text.decode()} of {address} is in {queue}")
        before = self._came_by.setdefault((queue, message.text), [])
        may_repeat = any(state.bindings.get(key) is None for key in before)
        may_repeat |= message.presettled and asked.binding not in before
        before.append(asked.binding)
        return may_repeat
