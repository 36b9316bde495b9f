"""Link ends inside a router: a publisher and a subscriber whose state outlives the router. Any router may take them
over with their complete maps. Each act is an event at their router. When the act returns, all its effects have arrived.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from tests.topic.clients import NEWS
from topic.actions import AnswerDeliveries, AnswerPublisher, AnswerSubscriber, Detach, Resume
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.directory.entry import CONFIGURED, Lifetime
from topic.ends.end import InsideEnd
from topic.ends.publishing import PublishingEnd
from topic.ends.subscribing import SubscribingEnd
from topic.identity import NOWHERE, LinkIdentity
from topic.termini.attaches import Claim

if TYPE_CHECKING:
    from tests.topic.bench import Bench

LASTING = Lifetime(60, "connection-close", 1)
INGRESS = LinkIdentity("set", "in", NEWS)
"""The identity of the subscriber."""


@attrs.define
class Outgoing:
    """The unsettled deliveries of a publisher, in order. All routers that may take it over share this."""

    messages: dict[bytes, bytes] = attrs.Factory(dict)
    """Tag -> message."""
    outcomes: dict[bytes, DeliveryOutcome] = attrs.Factory(dict)
    """Tag -> outcome, if there is one."""

    @property
    def map(self) -> dict[bytes, int]:
        return {tag: int(self.outcomes.get(tag, 0)) for tag in self.messages}


class InsidePublisher(PublishingEnd[bytes], InsideEnd):
    """A publisher that knows its deliveries by their tags."""

    def __init__(self, bench: "Bench", router: str, state: Outgoing, *, settles: bool = True) -> None:
        """`settles`: whether it settles deliveries that have an outcome."""
        identity = LinkIdentity("set", "out", NEWS)
        super().__init__(bench.stations[router].node, identity, LASTING, settles_first=False)
        self.bench, self.state, self.settles = bench, state, settles
        self.credit = 0
        self.granted: list[int] = []
        self.why = ""
        self.come()

    @property
    def is_there(self) -> bool:
        return self.epoch is not None and not self.is_detached

    def come(self) -> None:
        """Attach, with the map if the link was attached before."""
        now = self.node.now()
        self.attach(self.claim(self.state.map if self.known() is not None else None), now)
        self.bench.flow()

    def go(self, *, closed: bool = False) -> None:
        self.leave(self.node.now(), closed=closed)
        self.bench.flow()

    def send(self, *messages: bytes) -> None:
        self.state.messages |= {message: message for message in messages}
        self.node.now()
        self._go_on()
        self.bench.flow()

    def settle_all(self) -> None:
        self.node.now()
        self.settles = True
        self._settle([record for record, tag in self.open.items() if tag in self.state.outcomes])
        self.bench.flow()

    def _go_on(self) -> None:
        transferred = set(self.open.values())
        tags = [tag for tag in self.state.messages if tag not in transferred and tag not in self.state.outcomes]
        tags = tags[: self.credit]
        if tags:
            self.credit -= len(tags)
            self.publish(tags, tags, [self.state.messages[tag] for tag in tags])
            self.node.perform()

    def _settle(self, records: list[Record]) -> None:
        for record in records:
            tag = self.open.pop(record)
            del self.state.messages[tag], self.state.outcomes[tag]
        self.node.topic.settle(self.stream, records)
        self.node.perform()

    # the core's actions

    def begin(self, action: AnswerPublisher) -> None:
        for tag in list(self.state.outcomes):  # the map has settled these
            del self.state.messages[tag], self.state.outcomes[tag]
        self.open.clear()
        self.credit = action.credit
        self.node.later(self._go_on)

    def send_outcomes(self, action: AnswerDeliveries) -> None:
        self.state.outcomes |= {self.open[record]: action.outcome for record in action.records}
        if self.settles:
            self._settle(action.records)

    def grant(self, count: int) -> None:
        self.granted.append(count)
        self.credit += count
        self.node.later(self._go_on)

    def ask(self) -> None:
        self.alive(answered=True)

    def detach(self, action: Detach) -> None:
        self.why = action.condition


@attrs.define
class Incoming:
    """The deliveries that a subscriber got. All routers that may take it over share this."""

    taken: list[bytes] = attrs.Factory(list)
    """Messages, in order."""
    map: dict[bytes, int] = attrs.Factory(dict)
    """Keyed by key: deliveries that are not known to be settled."""


class InsideSubscriber(SubscribingEnd, InsideEnd):
    """A subscriber that answers each delivery when it gets it, if it `accepts`."""

    def __init__(self, bench: "Bench", router: str, state: Incoming, *, accepts: bool = True, clock: int = 0) -> None:
        """`clock`: of a leader's attach; then the link is a configured one."""
        node, lifetime = bench.stations[router].node, CONFIGURED if clock else LASTING
        super().__init__(node, INGRESS, lifetime, settles_first=False, sends_settled=False)
        self.bench, self.state, self.accepts, self.clock = bench, state, accepts, clock
        self.resumed: list[tuple[int, bool]] = []
        """(state, whether it is settled)"""
        self.why = ""
        self.come()

    @property
    def is_there(self) -> bool:
        return self.epoch is not None and not self.is_detached

    def come(self) -> None:
        now = self.node.now()
        claim = Claim(None, self.state.map, True, NOWHERE, self.clock) if self.clock else self.claim(self.state.map)
        self.attach(claim, now)
        self.bench.flow()

    def go(self, *, closed: bool = False) -> None:
        self.leave(self.node.now(), closed=closed)
        self.bench.flow()

    # the core's actions

    def begin(self, action: AnswerSubscriber) -> None:
        self.node.topic.credit(self.subscriber, 100)

    def deliver(self, records: list[Record]) -> None:
        self.state.map |= dict.fromkeys((record.key for record in records), 0)
        if self.accepts:
            self._take(records)

    def redeliver(self, record: Record) -> None:
        raise AssertionError("it gives nothing back")

    def _take(self, records: list[Record]) -> None:
        self.state.taken += [record.message for record in records if record.message is not None]
        self.state.map |= dict.fromkeys((record.key for record in records), int(DeliveryOutcome.ACCEPTED))
        self.node.topic.outcomes(self.subscriber, records, DeliveryOutcome.ACCEPTED)

    def resume(self, action: Resume) -> None:
        self.resumed.append((action.state, action.settled))
        if action.settled:
            self.forget([action.record.key])
        elif not action.state and self.accepts:
            self._take([action.record])

    def settle(self, records: Sequence[Record]) -> None:
        self.forget([record.key for record in records])

    def forget(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.state.map.pop(key, None)  # a delivery in a map may be settled twice

    def ask(self) -> None:
        self.node.topic.echoed(self.subscriber)

    def detach(self, action: Detach) -> None:
        self.why = action.condition
