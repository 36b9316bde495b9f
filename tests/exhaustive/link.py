"""A client's link at a router of the model: its open deliveries, and the frames that its client gets."""

from collections.abc import Callable
from typing import Any

from tests.exhaustive.clients import Frame, check
from topic.actions import (
    AnswerDeliveries,
    AnswerPublisher,
    AnswerSubscriber,
    Credit,
    Deliver,
    Detach,
    Echo,
    LinkAction,
    Redeliver,
    Resume,
    SettleSubscriber,
)
from topic.delivery.record import Record


class Link:
    """A client's link while it is attached. `client` is the client's index."""

    __slots__ = ("client", "end", "records", "serial")

    def __init__(self, client: int, serial: int) -> None:
        self.client = client
        self.serial = serial
        self.end: Any = None
        self.records: dict[bytes, Record] = {}
        """The records that were transferred and are not settled, by tag or delivery key."""

    def frames(self, action: LinkAction) -> list[Frame]:
        """The frames that the client gets for an action of the core."""
        return _FRAMES[type(action)](self, action)

    def _answer_publisher(self, action: AnswerPublisher) -> list[Frame]:
        return [("answered", action.epoch, action.generation, _packed(action.unsettled))]

    def _answer_subscriber(self, action: AnswerSubscriber) -> list[Frame]:
        return [("answered", action.epoch, _packed(action.unsettled))]

    def _detach(self, action: Detach) -> list[Frame]:
        return [("detached", action.condition, action.description)]

    def _deliver(self, action: Deliver) -> list[Frame]:
        for record in action.records:
            assert record.message is not None and record.key not in self.records
            self.records[record.key] = record
        return [("deliver", record.key, record.message) for record in action.records]

    def _redeliver(self, action: Redeliver) -> list[Frame]:
        """The client forgot the delivery when it released it."""
        self.records[action.record.key] = action.record
        return [("deliver", action.record.key, action.record.message)]

    def _resume(self, action: Resume) -> list[Frame]:
        record = action.record
        if not action.settled:
            check(record.key not in self.records, "resumed transfer", "transferred already on this connection")
            self.records[record.key] = record
        if action.settled or action.state:
            return [("restated", record.key, action.settled)]
        return [("resume", record.key, record.message)]

    def _settle_subscriber(self, action: SettleSubscriber) -> list[Frame]:
        known = [record.key for record in action.records if self.records.pop(record.key, None) is not None]
        return [("settle", tuple(known))] if known else []

    def _echo(self, action: Echo) -> list[Frame]:
        return [("echo",)]

    def _answer_deliveries(self, action: AnswerDeliveries) -> list[Frame]:
        for record in action.records:
            check(self.records.get(record.tag) is record, "one outcome", "answered without a transfer on this attach")
        return [("outcome", tuple(record.tag for record in action.records), int(action.outcome))]

    def _credit(self, action: Credit) -> list[Frame]:
        return []  # some credit is always left


def _packed(unsettled: dict[bytes, int] | None) -> tuple[tuple[bytes, int], ...] | None:
    return None if unsettled is None else tuple(unsettled.items())


_FRAMES: dict[type[LinkAction], Callable[..., list[Frame]]] = {
    AnswerPublisher: Link._answer_publisher,
    AnswerSubscriber: Link._answer_subscriber,
    Detach: Link._detach,
    Deliver: Link._deliver,
    Redeliver: Link._redeliver,
    Resume: Link._resume,
    SettleSubscriber: Link._settle_subscriber,
    Echo: Link._echo,
    AnswerDeliveries: Link._answer_deliveries,
    Credit: Link._credit,
}
