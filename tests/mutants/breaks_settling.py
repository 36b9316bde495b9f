"""Breakages of settling and forgetting deliveries (protocol 5, Settle and Forget)."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from tests.mutants.mutant import FEW_BYTES, KILLS, MOVING, REUSED, REUSING, Method, mutant
from tests.topic import test_budgets, test_moving, test_reused_tags
from topic.delivery.record import HomeStream, Record, Stream
from topic.delivery.records import RecordTable
from topic.delivery.window import CreditWindow
from topic.directory.addresses import ByAddress
from topic.edge.edge import Edge
from topic.edge.receipts import Receipts
from topic.edge.reports import Reports
from topic.edge.settlement import Settlement
from topic.edge.subscriber import LocalSubscriber
from topic.home.home import Home
from topic.home.publishing import Publishing
from topic.home.resolution import Resolution
from topic.home.settlement import HomeSettlement
from topic.journal import Event
from topic.wire.outgoing import Outgoing
from topic.wire.segments import Segment


@mutant(Reports, "report", (Edge, "__init__"), by="3", **KILLS)
def settled_on_outcome(report: Method, init: Method) -> tuple[Method, Method]:
    """5 Settle: an edge settles its subscribers when the publisher has settled, not when they have finished."""
    edges: dict[Reports, Edge] = {}

    def broken(reports: Reports, stream: HomeStream, records: list[Record]) -> None:
        report(reports, stream, records)
        edge = edges[reports]
        if records:
            Settlement(edge.outlet, edge.records, ByAddress(), edge.delivery).settle_locals(records)
        edge.records.forget(stream, records)

    def built(edge: Edge, *arguments: Any) -> None:
        init(edge, *arguments)
        edges[edge.reports] = edge

    return broken, built


@mutant(Receipts, "remember", by="5", **KILLS | REUSING)
def forgotten_when_written(_: Method) -> Method:
    """5 Forget: an edge remembers a settled delivery until it knows that its subscribers know."""

    def broken(forgetting: Receipts, subscriber: LocalSubscriber, record: Record) -> None:
        """A written settlement counts as known."""

    return broken


@mutant(Receipts, "attached_again", by="5", **MOVING | REUSING)
def forgotten_on_attach(attached_again: Method) -> Method:
    """5 Forget: a subscriber whose map still names a delivery does not know that it is settled."""

    def broken(forgetting: Receipts, subscriber: LocalSubscriber, said: object) -> None:
        attached_again(forgetting, subscriber, None)

    return broken


@mutant(Receipts, "settled_by_client", by="5", **KILLS | REUSING | {"hasty": 1.0})
def settled_not_heeded(_: Method) -> Method:
    """5 Forget: the edge waits for no receipt of a subscriber that has settled the delivery itself."""

    def broken(receipts: Receipts, subscriber: LocalSubscriber, records: list[Record]) -> None:
        """The edge waits."""

    return broken


@mutant(
    Receipts,
    "settled_by_client",
    by="5",
    scenario=test_reused_tags.test_a_delivery_that_is_given_back_settled_and_comes_again_needs_a_receipt,
)
def given_back_counts_as_settled(_: Method) -> Method:
    """5 Forget: a settlement of the client counts only with a final outcome."""

    def broken(receipts: Receipts, subscriber: LocalSubscriber, records: list[Record]) -> None:
        subscriber.client_has_settled.update(records)

    return broken


@mutant(
    LocalSubscriber,
    "_doubt_settled",
    by="5",
    scenario=test_reused_tags.test_a_settlement_of_the_client_counts_until_a_map_names_the_delivery,
)
def client_settlement_outlives_its_map(_: Method) -> Method:
    """5 Forget: a settlement of the client counts until a map names the delivery."""

    def broken(subscriber: LocalSubscriber, client_map: object, *, complete: bool) -> None:
        """The settlement still counts."""

    return broken


@mutant(HomeSettlement, "_settle", by="5", **KILLS | REUSING)
def home_forgets_early(settle: Method) -> Method:
    """5 Forget: home remembers a settled delivery until every router to which it was forwarded confirms."""

    def broken(settlement: HomeSettlement, stream: HomeStream, records: list[Record], event: Event) -> None:
        settle(settlement, stream, records, event)
        forgotten = [record for record in records if record.awaited and not record.unread]
        for record in forgotten:
            record.awaited.clear()
        settlement._edge.receipts.forget(forgotten)

    return broken


@mutant(RecordTable, "enter", by="1", **MOVING | REUSING | {"plain": 1.0, "faults": ("kill", "flap", "partition")})
def key_used_again_at_once(_: Method) -> Method:
    """5 Reused tags: a key that the network still holds is withheld."""

    def broken(table: RecordTable, records: list[Record]) -> bool:
        table._enter({record.key: record for record in records}, records[0].stream.address)
        return True

    return broken


@mutant(Publishing, "_tell_apart", by="5", **KILLS | REUSED)
def not_told_apart(_: Method) -> Method:
    """5 Reused tags: a settled delivery of a plain publisher does not hold up the next one with its tag."""

    def broken(publishing: Publishing, stream: HomeStream, record: Record) -> bool:
        return False

    return broken


@mutant(HomeStream, "new_keys", by="5", scenario=test_reused_tags.test_publisher_that_reuses_a_tag_gets_numbered_keys)
def numbered_once(_: Method) -> Method:
    """5 Reused tags: once a plain publisher has used a tag again, all its deliveries get numbered keys."""

    def broken(stream: HomeStream, tags: Iterable[bytes]) -> list[bytes]:
        return [stream.keys.key(tag) for tag in tags]

    return broken


@mutant(HomeStream, "needs_tags", by="5", scenario=test_reused_tags.test_keys_of_a_life_that_goes_on_are_of_its_tags)
def numbered_though_resumed(_: Method) -> Method:
    """5 Reused tags: a life that may go on with a map keeps the keys of its tags."""
    always_new: Any = property(lambda stream: False)
    return cast("Method", always_new)


@mutant(Home, "give_up", by="45", **MOVING | {"early": 0.5})
def aborted_not_told(_: Method) -> Method:
    """7.4: a router that asked about a delivery is told when its publisher gives it up."""

    def broken(home: Home, stream: HomeStream, key: bytes, record: Record | None) -> None:
        if record is not None:
            home.edge.settlement.close(stream, [record])

    return broken


@mutant(Home, "abort", by="45", **MOVING | {"gives_up": 0.5})
def aborted_if_held(_: Method) -> Method:
    """7.3: a publisher may abort a delivery of its map that home does not hold."""

    def broken(home: Home, stream: HomeStream, tag: bytes) -> None:
        key = stream.keys.key(tag)
        if key in stream.unconfirmed and stream.came_again(key) is not None:
            home.give_up(stream, key, home.edge.unconfirmed.take(stream, key))

    return broken


@mutant(Publishing, "_publish_again", by="1", **MOVING | {"settles_again": 0.5})
def sent_again_settled_to_all(again: Method) -> Method:
    """7.3: a subscriber that has had a delivery does not get it again if its publisher sends it again as settled."""

    def broken(publishing: Publishing, stream: HomeStream, tag: bytes, *columns: Any, presettled: bool) -> Record:
        key = stream.keys.key(tag)
        if presettled and stream.expected.pop(key, None) is not None:
            record = stream.unconfirmed.get(key)
            publishing._edge.settlement.close(stream, [record] if record is not None else [])
        return cast(Record, again(publishing, stream, tag, *columns, presettled=presettled))

    return broken


@mutant(CreditWindow, "give_back", by="6", **FEW_BYTES)
def window_never_given_back(give_back: Method) -> Method:
    """5 Credit: a settled delivery no longer counts against its publisher's window."""

    def broken(window: CreditWindow, sizes: Sequence[int]) -> None:
        window.unsettled -= len(sizes)

    return broken


@mutant(Publishing, "room", by="5", **FEW_BYTES | {"budget": 100})
def budget_never_given_back(_: Method) -> Method:
    """5 Budgets: deliveries that waited for a full router proceed when it has room."""

    def broken(publishing: Publishing, router: str) -> None:
        """The router stays full."""

    return broken


@mutant(
    Publishing,
    "_awaits_room",
    by="5",
    scenario=test_budgets.test_what_is_for_a_full_router_waits_in_order_until_there_is_room,
)
def no_budgets(_: Method) -> Method:
    """5 Budgets: deliveries for a full router wait."""

    def broken(publishing: Publishing, stream: HomeStream) -> bool:
        return False

    return broken


@mutant(CreditWindow, "due", by="6", **FEW_BYTES)
def window_without_bytes(_: Method) -> Method:
    """5 Credit: a publisher has no more credit than there are bytes left in its window."""

    def broken(window: CreditWindow) -> int:
        granted = window._deliveries - window.unsettled - window.credit
        window.credit += granted
        return granted

    return broken


@mutant(LocalSubscriber, "next_ready", by="6", **FEW_BYTES)
def given_without_room(next_ready: Method) -> Method:
    """5 Room: a connection gets no more messages than it has written."""

    def broken(subscriber: LocalSubscriber) -> list[Record]:
        subscriber.room = 1 << 20
        return cast(list[Record], next_ready(subscriber))

    return broken


@mutant(
    Resolution,
    "settled_late",
    by="1",
    scenario=test_reused_tags.test_a_settlement_that_comes_after_a_later_attach_is_of_the_older_delivery,
)
def late_settlements_dropped(_: Method) -> Method:
    """5 Reused tags: a settlement applies to the delivery that it names, even after a later attach."""
    return lambda *_: None


@mutant(
    Resolution,
    "hand_over",
    by="1",
    scenario=test_reused_tags.test_a_former_home_tells_the_next_one_what_others_have_not_heard_to_be_settled,
)
def former_home_hands_over_no_settlements(_: Method) -> Method:
    """5 Reused tags: the new home learns which deliveries a former home has settled, because others may not know."""
    return lambda *_: None


@mutant(
    Outgoing,
    "_ranges",
    by="2",
    scenario=test_moving.test_publishers_with_equal_epochs_have_outcomes_and_settlements_of_their_own,
)
def publishers_told_apart_by_epochs(ranges: Method) -> Method:
    """2: two links may have the same epoch, so messages about an attach name its link, too."""

    def broken(outgoing: Outgoing, targets: tuple[str, ...], kind: Segment, stream: Stream, ns: Iterable[int]) -> None:
        segments = outgoing._batch(targets).segments
        if segments and segments[-1][0] is kind and segments[-1][2] == stream.epoch:
            segments[-1][3] += [bound for n in ns for bound in (n, n)]
        else:
            ranges(outgoing, targets, kind, stream, ns)

    return broken
