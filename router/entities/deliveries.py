"""The entities for deliveries at this router, and for the waits that they cause."""

from collections.abc import Iterator
from typing import Final

from router.entities import states
from router.entities.observed import ObservedRouter
from router.entities.survey import DeliveryWait
from router.entities.table import OURS, Attribute, Entity, How, Metric, Type, Where
from topic.delivery.record import Record
from topic.directory.entry import Role
from topic.identity import shown_address


def tag_text(tag: bytes) -> str:
    """A delivery-tag as its publisher would write it: as text if it is printable ASCII, else as 0x and hexadecimal."""
    text = tag.decode("ascii", "replace")
    return text if text.isascii() and text.isprintable() else f"0x{tag.hex()}"


def _named(at: ObservedRouter, role: Role, name: bytes) -> str:
    entry = at.node.topic.directory.entry((role, name))
    return str(entry.identity) if entry is not None else name.decode()


def _at_subscribers(record: Record, most: int = 100) -> dict[str, str]:
    """The states of the delivery at the local subscribers, keyed by the subscriber's identity. The result has at most
    `most` entries, because management cuts longer maps."""
    some = zip(range(most), record.locals.items(), strict=False)
    return {str(subscriber.identity): states.at_subscriber(state) for _, (subscriber, state) in some}


DELIVERY: Final = Entity[Record](
    "delivery",
    "records that this router holds as home or edge",
    lambda at: at.node.topic.records.by_key.values(),
    (
        Attribute("identity", Type.TEXT, "its key, the same at every router", lambda at, one: one.key.decode()),
        Attribute("name", Type.TEXT, "the publisher's delivery-tag, as text or as `0x` and hexadecimal digits; only "
            "the home knows it", lambda at, one: tag_text(one.tag) if one.tag else None),
        Attribute("publisher", Type.TEXT, "container/link on address",
            lambda at, one: _named(at, Role.PUBLISHER, one.stream.publisher)),
        Attribute("address", Type.TEXT, "the address to which it was published",
            lambda at, one: shown_address(one.stream.address)),
        Attribute("home", Type.TEXT, "the router to which its publisher is attached", lambda at, one: one.stream.home),
        Attribute("n", Type.NUMBER, "its place in the publisher's order at its home; -1 if it has none",
            lambda at, one: one.n),
        Attribute("state", Type.TEXT, "`in_doubt`; `accepted` (not settled yet); `settled` (a subscriber or router "
            "does not know this yet); `unconfirmed` (in doubt without a home); `placeholder` (unconfirmed, without the "
            "message)",
            lambda at, one: states.state_of(one), series=Metric("oncemesh_records", ("state",), How.BY_VALUE,
            (states.PLACEHOLDER, states.UNCONFIRMED, *states.STATES.values()), "deliveries of which this router holds "
                "a record, by state")),
        Attribute("bytes", Type.BYTES, "the size of the part of its message that this router holds",
            lambda at, one: one.size,
            series=Metric("oncemesh_message_bytes", how=How.SUM, says="the size of all messages in records")),
        Attribute("in_doubt", Type.FLAG, "whether it is in doubt",
            lambda at, one: states.state_of(one) in states.IN_DOUBT, Where.NOWHERE,
            Metric("oncemesh_oldest_in_doubt_seconds", how=How.OLDEST, says="age of the oldest delivery in doubt, from "
                "the first measurement that found it. `oncemesh status` shows the cause")),
        Attribute("subscribers", Type.MAP, "subscribers of this router, each with `queued`, `sent`, `withheld`, "
            "`awaiting home`, or its outcome", lambda at, one: _at_subscribers(one)),
        Attribute("unanswered", Type.NUMBER, "how many of these subscribers have no outcome", lambda at, one: one.open),
        Attribute("awaited_routers", Type.TEXTS, "routers from which its home still awaits an outcome",
            lambda at, one: sorted(one.awaited)),
        Attribute("orphans", Type.TEXTS, "subscribers from which its home awaits an outcome, and whose router "
            "is not in contact",
            lambda at, one: [_named(at, Role.SUBSCRIBER, name) for name in one.orphans]),
    ),
    managed=f"{OURS}delivery",
)  # fmt: skip


def _waits(at: ObservedRouter) -> Iterator[DeliveryWait]:
    return iter(at.survey.waits)


WAIT: Final = Entity[DeliveryWait](
    "wait",
    "subscribers, publishers and routers that deliveries in doubt wait for",
    _waits,
    (
        Attribute("for", Type.TEXT, "a router, a subscriber, an orphan or an absent publisher; a router that has "
            "`to receive` what is under way; `any subscriber of` a balanced address `with credit`; `the end of its "
            "rest`, if a subscriber has given it back; or an attached publisher that "
            "has `to settle` accepted deliveries or `to show that it is alive` (protocol.md, 6.5, 6.6)",
            lambda at, wait: wait.awaited, Where.STATUS),
        Attribute("publishers", Type.TEXTS, "the publishers of the waiting deliveries",
            lambda at, wait: wait.publishers,
            Where.STATUS),
        Attribute("records", Type.NUMBER, "how many deliveries wait", lambda at, wait: wait.records, Where.STATUS),
        Attribute("since_s", Type.SECONDS, "how long ago a status first showed the oldest delivery that still "
            "waits; a short time if deliveries go on and others take their place",
            lambda at, wait: wait.since_s, Where.STATUS),
    ),
    status="waits",
)  # fmt: skip
