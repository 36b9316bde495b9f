"""Messages whose bodies are on the disk alone: they are read when a consumer is about to get them (protocol 14.13).

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.failures import died, marked
from tests.set_store import sent_behind
from tests.topic.clients import Pen
from tests.topic.queues.bench import QUEUE, SET, QueueBench, QueueStation
from tests.topic.queues.test_egress import at_rest, lasting, plain
from tests.topic.queues.test_ingress import publisher as pen_of
from tests.topic.raft.mutants import Broken, must_notice
from topic.core import Topic
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.room import NO_ROOM, Demand, SubscriberRoom
from topic.queues import replica
from topic.queues.bodies.message_rows import QueueRows, body_key
from topic.queues.copying.pieces import SnapshotRows, SnapshotRuns, begins_behind, piece_of, run_row
from topic.queues.leader import leaders, publisher
from topic.queues.leader.egress import Egress
from topic.queues.leader.leaders import LedSet
from topic.queues.leader.letters import Letters
from topic.queues.leader.publisher import SetPublisher
from topic.queues.operations import Done, Purge, QueueId
from topic.queues.positions import Run, position_of
from topic.queues.replica import SetReplica
from topic.queues.rows import PackedRows, StateRows
from topic.queues.storing import ReadBodies
from topic.raft.configuration import Replica
from topic.raft.life import SetLife

ALL = [b"%d" % number for number in range(12)]


def dropped(bench: QueueBench, router: str) -> list[bytes]:
    """The messages of the queue whose bodies that router has on its disk alone."""
    rows = bench.sets(router).state(SET).messages.of(bench.queue)
    return [bench.texts[position] for position, body in rows.items() if body is None]


def filled(*messages: bytes) -> tuple[QueueBench, Pen]:
    """A queue with these messages. Replicas make a snapshot after every second entry, and keep no body that it has."""
    bench = QueueBench(*"abcde", compare_every=2)
    pen = pen_of(bench, "e")
    for message in messages:
        pen.send(message)
    pen.settle(*messages)
    assert bench.messages("a") == [*messages]
    return bench, pen


def without_bodies(scene: Callable[[], None]) -> Callable[[], None]:
    """The scene, with replicas that keep no body that their disks have, and read few at once."""

    def play() -> None:
        with (
            patch.object(replica, "KEPT_BODIES", -1),
            patch.object(publisher, "AHEAD", 4),
            patch.object(publisher, "AT_ONCE", 5),
        ):
            scene()

    play.__name__, play.__doc__ = scene.__name__, scene.__doc__
    return play


def hold_reads(bench: QueueBench, router: str) -> list[ReadBodies]:
    """Have the disk of the router read no bodies from now on. Returns what it is asked for."""
    held: list[ReadBodies] = []
    station = bench.at(router)

    def do(change: object) -> None:
        if isinstance(change, ReadBodies):
            held.append(change)
        else:
            QueueStation.do(station, change)  # type: ignore[arg-type]

    station.do = do  # type: ignore[method-assign]
    return held


def answer(bench: QueueBench, router: str, read: ReadBodies) -> None:
    """The disk has read this, as it is by now."""
    QueueStation.do(bench.at(router), read)
    bench.at(router).node.pump()
    bench.flow()


def purge(bench: QueueBench) -> None:
    [*_, last] = bench.sets("a").state(SET).messages.of(bench.queue)
    number = bench.at("a").node.ask(Purge("queue/1", bench.queue, last))
    bench.collect("a")
    bench.flow()
    assert isinstance(bench.at("a").answers[number], Done)


@without_bodies
def test_a_consumer_gets_what_is_on_the_disk_alone_in_order() -> None:
    bench, pen = filled(*ALL)
    for name in "abc":
        assert len(dropped(bench, name)) >= len(ALL) - 1
    reader = plain(bench, "d", credit=5)
    assert reader.delivered == ALL[:5]
    pen.send(b"new")
    pen.settle(b"new")
    reader.accept(*ALL[:5])
    reader.grant(100)
    assert reader.delivered == [*ALL, b"new"]
    reader.accept(*ALL[5:], b"new")
    bench.wait(1)
    assert at_rest(bench)


@without_bodies
def test_a_message_that_comes_back_is_read_again() -> None:
    bench, _ = filled(*ALL)
    reader = plain(bench, "d", credit=3)
    reader.answer(DeliveryOutcome.MODIFIED, ALL[0], failed=True)
    reader.grant(1)
    assert reader.delivered == [*ALL[:3], marked(ALL[0], 1)]


@without_bodies
def test_the_next_leader_reads_what_consumers_may_have_already() -> None:
    """A few at once."""
    bench, _ = filled(*ALL)
    readers = [lasting(bench, router, router, credit=4) for router in "de"]
    had = [[message for message in reader.delivered if message is not None] for reader in readers]
    assert len({*had[0], *had[1]}) == 8
    bench.stop("a")
    bench.wait(5)
    assert bench.leader != "a" and len(dropped(bench, bench.leader)) >= 8
    for reader, messages in zip(readers, had, strict=True):
        assert reader.delivered == messages, "nobody gets anything twice"
        reader.accept(*messages)
        assert {*reader.settled_messages} >= {*messages}
        reader.grant(4)
    assert {message for reader in readers for message in reader.delivered} == {*ALL}


@without_bodies
def test_all_routers_stop_and_the_bodies_are_on_the_disks() -> None:
    bench, _ = filled(*ALL)
    for name in "abc":
        bench.stop(name)
    for name in "abc":
        bench.start(name, 2)
    bench.wait(5)
    assert len(dropped(bench, bench.leader)) >= len(ALL) - 2
    assert plain(bench, "d", credit=100).delivered == ALL


@without_bodies
def test_a_router_that_lacks_all_gets_the_bodies_with_the_snapshot() -> None:
    bench, _ = filled(*ALL)
    bench.stop("c")
    bench.disks["c"] = type(bench.disks["c"])(bench.new_store.parts([SET]))
    bench.start("c", 2)
    bench.wait(5)
    assert bench.disks["c"].parts[SET].snapshot.index > 0 and bench.messages("c") == ALL
    sets = bench.sets("a")
    sets._replicas[SET].raft.hand_over(Replica("c", bench.disks["c"].parts[SET].store), bench.now)
    sets._touched[SET] = None
    bench.collect("a")
    bench.wait(5)
    assert bench.leader == "c" and len(dropped(bench, "c")) > 5
    assert plain(bench, "d", credit=100).delivered == ALL


def dropped_at(bench: QueueBench, router: str) -> list[int]:
    rows = bench.sets(router).state(SET).messages.of(bench.queue)
    return [position for position, body in rows.items() if body is None]


@without_bodies
def test_message_purged_while_the_disk_reads_is_offered_to_nobody() -> None:
    bench, pen = filled(*ALL)
    held = hold_reads(bench, "a")
    reader = plain(bench, "d", credit=100)
    assert reader.delivered == [] and len(held) == 1
    purge(bench)
    pen.send(b"new")
    answer(bench, "a", held.pop())
    assert reader.delivered == [b"new"] and bench.leader == "a"
    reader.accept(b"new")
    pen.settle(b"new")
    bench.wait(1)
    assert at_rest(bench)


@without_bodies
def test_message_purged_after_its_read_is_offered_to_nobody() -> None:
    bench, _ = filled(*ALL)
    reader = plain(bench, "d", credit=1)
    [end] = bench.at("a").node.led[SET].egresses.values()
    assert end._read, "some is read ahead"
    purge(bench)
    assert reader.delivered == ALL[:1]
    reader.accept(ALL[0])
    reader.grant(5)
    assert reader.delivered == ALL[:1] and not end._read and not bench.at("a").node.led[SET]._ahead


@without_bodies
def test_what_a_former_leader_has_asked_for_is_nobodys() -> None:
    bench, _ = filled(*ALL)
    held = hold_reads(bench, "a")
    reader = plain(bench, "d", credit=100)
    for other in "bcde":
        bench.part("a", other)
    bench.wait(5)
    assert reader.delivered == ALL
    for other in "bcde":
        bench.meet("a", other)
    bench.wait(1)
    answer(bench, "a", held.pop())
    reader.accept(*ALL)
    bench.wait(1)
    assert reader.delivered == ALL and at_rest(bench)


@without_bodies
def test_dead_letters_whose_bodies_are_on_the_disk_alone_are_read() -> None:
    """Their address takes none while the first leader leads."""
    bench = QueueBench(*"abcde", compare_every=2, declares=False)
    bench.queue = bench.declare(QUEUE, dead_letter="topic/dead")
    pen = pen_of(bench, "e")
    for message in ALL:
        pen.send(message + b"!1")
    pen.settle(*(message + b"!1" for message in ALL))
    bench.wait(3)
    sent = bench.sets("b").state(SET).messages.sent
    assert len(sent) == len(ALL) and [*sent.values()].count(None) >= len(ALL) - 2
    bench.stop("a")
    bench.wait(5)
    reader = bench.subscriber("d", "news", address="topic/dead", credit=100)
    bench.wait(20)
    expected = [died(message + b"!1") or b"" for message in ALL]
    assert sorted(filter(None, reader.delivered)) == sorted(expected)
    reader.accept(*expected)
    bench.wait(1)
    for name in bench.names:
        if name in "bc":
            assert len(bench.sets(name).state(SET).messages.sent) == 0


@without_bodies
def test_leadership_moves_if_the_disk_hangs_while_it_reads() -> None:
    """Though nothing else is to be written."""
    bench, _ = filled(*ALL)
    bench.hanging.add("a")
    reader = plain(bench, "d", credit=3)
    assert reader.delivered == []
    bench.wait(10)
    assert bench.leader != "a" and reader.delivered == ALL[:3]


def damage(bench: QueueBench, body: bytes | None) -> None:
    """The first body on a's disk is another one; None: it is gone."""
    [first, *_] = dropped_at(bench, "a")
    rows = bench.disks["a"].parts[SET].rows
    if body is None:
        del rows[body_key(first)]
    else:
        rows[body_key(first)] = body


@pytest.mark.parametrize("body", [b"?", b"longer", None])
def test_a_body_that_is_not_what_was_written_goes_to_nobody(body: bytes | None) -> None:
    """The replica begins anew, another one leads, and the first one gets all from it."""

    @without_bodies
    def scene() -> None:
        bench, _ = filled(*ALL)
        damage(bench, body)
        store = bench.disks["a"].parts[SET].store
        reader = plain(bench, "d", credit=100)
        bench.wait(5)
        assert reader.delivered == ALL and bench.leader != "a"
        assert bench.disks["a"].parts[SET].store != store
        assert "is missing, or damaged" in bench.sets("a")._replicas[SET].why_aside
        assert bench.messages("a") == ALL

    scene()


@without_bodies
def test_a_read_of_a_state_that_was_replaced_counts_nothing() -> None:
    """The replica has begun anew meanwhile, and has the messages again."""
    bench, _ = filled(*ALL)
    held = hold_reads(bench, "a")
    reader = plain(bench, "d", credit=100)
    bench.at("a").node.damaged(SET, "a scrub found it")
    bench.at("a").node.pump()
    assert bench.sets("a")._replicas[SET]._reading == {}
    bench.flow()
    bench.wait(5)
    assert reader.delivered == ALL and bench.leader != "a" and bench.messages("a") == ALL
    [read] = held
    bench.at("a").node.bodies_read(read, [b"of another time" for _ in read.positions])
    bench.at("a").node.pump()
    assert bench.messages("a") == ALL, "it does not begin anew for that"


@without_bodies
def test_a_body_stays_in_memory_until_the_disk_has_it() -> None:
    bench, pen = filled()
    bench.hanging.add("a")
    for message in ALL:
        pen.send(message)
    assert bench.messages("b") == ALL and len(dropped(bench, "b")) > 1
    assert dropped(bench, "a") == []
    station, disk = bench.at("a"), bench.disks["a"].parts[SET].rows
    waiting, station.waiting = station.waiting, []
    for change in waiting:
        station.do(change)
        assert all(body_key(at) in bench.disks["a"].parts[SET].rows for at in dropped_at(bench, "a"))
    assert disk and len(dropped(bench, "a")) > 1


@without_bodies
def test_who_reads_at_a_follower_that_gets_another_state_hears_of_nothing() -> None:
    bench, pen = filled(*ALL)
    held = hold_reads(bench, "b")
    number = bench.at("b").node.read(SET, bench.queue, dropped_at(bench, "b"))
    bench.collect("b")
    bench.flow()
    for other in "acde":
        bench.part("b", other)
    for message in ALL:
        pen.send(b"later " + message)
    for other in "acde":
        bench.meet("b", other)
    bench.wait(2)
    assert bench.at("b").found_bodies[number] == {} and len(bench.messages("b")) == 2 * len(ALL)
    answer(bench, "b", held.pop())
    assert bench.at("b").found_bodies[number] == {}


def test_few_bodies_stay_in_memory() -> None:
    """Nothing is read."""
    bench, _ = filled(*ALL)
    held = hold_reads(bench, "a")
    assert bench.disks["a"].parts[SET].snapshot.index > 5 and dropped(bench, "a") == []
    assert plain(bench, "d", credit=100).delivered == ALL and not held


def test_as_many_are_read_as_one_read_may_have() -> None:
    with patch.object(replica, "KEPT_BODIES", -1), patch.object(publisher, "AHEAD", 6):
        bench, _ = filled(*ALL)
        held = hold_reads(bench, "a")
        plain(bench, "d", credit=100)
        [read] = held
        assert len(read.positions) == 6 == len({*read.positions})


def test_a_set_that_is_far_ahead_reads_what_consumers_take() -> None:
    with patch.object(replica, "KEPT_BODIES", -1), patch.object(leaders, "MOST_AHEAD", -1):
        bench, _ = filled(*ALL)
        held = hold_reads(bench, "a")
        with patch.object(Topic, "demand", lambda self, stream: Demand(frozenset(), SubscriberRoom(100, 3), NO_ROOM)):
            plain(bench, "d", credit=100)
        [read] = held
        assert len(read.positions) == 3


def test_somebody_else_may_read_bodies() -> None:
    with patch.object(replica, "KEPT_BODIES", -1):
        bench, _ = filled(*ALL)
        positions = dropped_at(bench, "b")
        number = bench.at("b").node.read(SET, bench.queue, [*positions, 5])
        bench.collect("b")
        bench.flow()
        assert [*bench.at("b").found_bodies[number].values()] == dropped(bench, "b")


# rows

QUEUES = [QueueId(SetLife(1, "a"), number) for number in range(3)]
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete", "drop", "take"]), st.integers(0, 2), st.binary(max_size=3)
    ),
    max_size=60,
)


@given(steps)
def test_rows_of_messages_are_a_model(done: list[tuple[str, int, bytes]]) -> None:
    """Whatever is dropped: the digest is that of the same messages in another replica, and the disk has all bodies."""
    rows, other, model = StateRows(), StateRows(), dict[int, tuple[QueueId, bytes]]()
    disk: dict[bytes, bytes] = {}
    taken = -1
    for position, (step, number, body) in enumerate(done):
        if step == "put":
            model[position] = QUEUES[number], body
            for one in (rows, other):
                one.messages.put(QUEUES[number], position, body, number)
        elif step == "delete" and model:
            [*_, at] = [*model][: len(body) + 1]
            queue, _ = model.pop(at)
            for one in (rows, other):
                one.messages.delete(queue, at)
        elif step == "take":
            taken = position
            for key, value in rows.take_changes().items():
                if value is None:
                    del disk[key]
                else:
                    disk[key] = value
        elif step == "drop":
            rows.messages.drop(taken, 4 * len(body))
        for one in (rows, other):
            one.check()
        assert rows.digest == other.digest
        for queue in QUEUES:
            there = {at: body for at, (owner, body) in model.items() if owner == queue}
            found = rows.messages.queues.get(queue) or QueueRows()
            bodies = {at: disk[body_key(at)] if body is None else body for at, body in found.items()}
            assert [*bodies.items()] == [*there.items()] and found.size == sum(map(len, there.values()))
            assert [*reversed(found)] == [*reversed(there)] and found.first == next(iter(there), None)
            runs = [(1, 9), (15, 40)]
            assert found.within(runs) == [at for at in there for first, last in runs if first <= at <= last]
            assert [*found.after(7)] == [at for at in there if at >= 7]
        assert len(rows.messages) == len(model)


def test_columns_that_shrink_have_what_is_left() -> None:
    rows = StateRows()
    for position in range(5000):
        rows.messages.put(QUEUES[0], position, b"%d" % position, 0)
    rows.take_changes()
    rows.messages.drop(4000, 100)
    assert len(rows.messages.queues[QUEUES[0]].dropped) == 55
    rows.messages.drop(4000, 1 << 20)
    for position in range(0, 4000, 3):
        rows.messages.delete(QUEUES[0], position)
    for position in range(1, 3900, 3):
        rows.messages.delete(QUEUES[0], position)
    found = rows.messages.queues[QUEUES[0]]
    assert len(found.dropped._positions) < 2 * len(found.dropped) + 1100
    assert all(found.is_body(position, b"%d" % position) for position in found)
    assert not found.is_body(2, b"3") and not found.is_body(4999, b"3")
    rows.check()


def snapshot(*pieces: list[tuple[bytes, bytes]]) -> SnapshotRows:
    found = SnapshotRows()
    for rows in pieces:
        found.add(1, piece_of(rows)[0])
    return found


def whole() -> list[tuple[bytes, bytes]]:
    """All rows of a state, as a leader sends them."""
    rows = StateRows()
    rows.put(b"a", b"1")
    for position in range(3):
        rows.messages.put(QUEUES[0], position, b"%d" % position, 0)
    rows.put(b"q", b"2")
    changes = rows.take_changes()
    return [*sent_behind({key: value for key, value in changes.items() if value is not None}, b"")]


def test_a_snapshot_has_all_rows_but_bodies_however_its_pieces_are_cut() -> None:
    rows = whole()
    for cut in range(len(rows) + 1):
        found = PackedRows(snapshot(rows[:cut], rows[cut:]).read())
        assert found == PackedRows(row for row in rows if len(row[0]) < 13)
        assert len(found) == 5 and len(StateRows(found).messages) == 3


@pytest.mark.parametrize("place", [1, 3, 5])
@pytest.mark.parametrize("way", ["missing", "another", "twice", "first"])
def test_a_snapshot_with_a_wrong_body_is_refused(place: int, way: str) -> None:
    rows = whole()
    key, value = rows[place]
    assert key == body_key(place // 2)
    rows[place : place + 1] = {
        "missing": [],
        "another": [(key, value + b"?")],
        "twice": [(key, value), (key, value)],
        "first": [(key, value), rows[place - 1]],
    }[way]
    with pytest.raises(ValueError, match=r"a message has no body, or another one|the last message has no body|none"):
        StateRows(snapshot(rows[:3], rows[3:]).read())


def test_a_snapshot_that_ends_behind_a_row_about_a_message_is_refused() -> None:
    with pytest.raises(ValueError, match="the last message has no body"):
        [*snapshot(whole()[:5]).read()]


def test_a_later_snapshot_has_messages_of_an_earlier_one() -> None:
    """Its runs tell which of them, and which of the former state."""
    earlier = whole()
    found = SnapshotRows()
    found.add(1, piece_of(earlier)[0])
    found.add(2, piece_of([run_row((1, 1)), (b"a", b"3")])[0])
    assert PackedRows(found.read()) == PackedRows([earlier[2], (b"a", b"3")])
    own = SnapshotRows()
    own.add(2, piece_of([*earlier[4:6], run_row((1, 2)), (b"a", b"3")])[0])
    found_rows = own.read([earlier[0], earlier[2], earlier[4]])
    assert PackedRows(found_rows) == PackedRows([earlier[2], earlier[4], (b"a", b"3")])


def test_a_snapshot_that_lacks_a_message_is_refused() -> None:
    with pytest.raises(ValueError, match="of 2 messages 1 are there"):
        [*snapshot([*whole()[:2], run_row((0, 1))]).read()]


@pytest.mark.parametrize("runs", [[(1, 1), (1, 2)], [(2, 1)], [(0, 1 << 64)]], ids=str)
def test_a_snapshot_with_wrong_runs_is_refused(runs: list[Run]) -> None:
    with pytest.raises(ValueError, match="a run that is none, or out of order"):
        [*snapshot([*map(run_row, runs)]).read()]


def test_a_copy_begins_behind_the_messages_that_a_replica_has() -> None:
    last = body_key(position_of(8, 0) - 1)
    for index, has, end, expected in (
        (7, 0, b"", b""),
        (7, 7, b"q", b"q"),
        (9, 7, body_key(5), body_key(5)),
        (9, 7, b"", last),
        (9, 7, run_row((3, 5))[0], last),
        (9, 7, b"q", last),
    ):
        assert begins_behind(index, has, end) == expected


BROKEN: list[Broken] = [
    (SnapshotRows, "add", "if index != self._index:", "if False:",
     test_a_later_snapshot_has_messages_of_an_earlier_one),
    (SnapshotRows, "read", "row[0] < first", "True", test_a_later_snapshot_has_messages_of_an_earlier_one),
    (SnapshotRows, "read", "if count !=", "if False and count !=",
     test_a_snapshot_that_lacks_a_message_is_refused),
    (SnapshotRuns, "add", "before < first <= last < 1 << 64", "True",
     lambda: test_a_snapshot_with_wrong_runs_is_refused([(1, 1), (1, 2)])),
    (SetReplica, "bodies_read", "if position not in rows:", "if False:",
     test_message_purged_while_the_disk_reads_is_offered_to_nobody),
    (SetReplica, "bodies_read", "body is None or not rows.is_body(position, body)", "body is None",
     lambda: test_a_body_that_is_not_what_was_written_goes_to_nobody(b"?")),
    (QueueRows, "is_body", "== (len(body), body_digest(body))", "[0] == len(body)",
     lambda: test_a_body_that_is_not_what_was_written_goes_to_nobody(b"?")),
    (SetReplica, "_renew", "self._forget_reads()", "pass",
     test_a_read_of_a_state_that_was_replaced_counts_nothing),
    (SetReplica, "_restore", "self._forget_reads()", "pass",
     test_who_reads_at_a_follower_that_gets_another_state_hears_of_nothing),
    (Letters, "_publish", "self._read_bodies(islice(self._left, AT_ONCE), AHEAD)", "pass",
     test_dead_letters_whose_bodies_are_on_the_disk_alone_are_read),
    (LedSet, "test_disk", "self._sets.propose(self._name, [Settled([])])", "pass",
     test_leadership_moves_if_the_disk_hangs_while_it_reads),
    (LedSet, "is_far_ahead", "self._ahead > MOST_AHEAD", "False",
     test_a_set_that_is_far_ahead_reads_what_consumers_take),
    (SetReplica, "stored", "self._on_disk = write.persist.snapshot.index", "pass",
     test_a_consumer_gets_what_is_on_the_disk_alone_in_order),
    (SetReplica, "_write", "self._writes.append",
     "self._on_disk = self.raft.log.snapshot.index; self._drop_bodies(); self._writes.append",
     test_a_body_stays_in_memory_until_the_disk_has_it),
    (SetReplica, "_drop_bodies", "self._on_disk + 1", "self._on_disk + 9",
     test_a_body_stays_in_memory_until_the_disk_has_it),
    (SetReplica, "_drop_bodies", "> KEPT_BODIES", "> -1", test_few_bodies_stay_in_memory),
    (Egress, "_publish_some", "if self._doubted:", "if False:",
     test_the_next_leader_reads_what_consumers_may_have_already),
    (Egress, "_publish_some", "heappush(self._free, position)", "pass",
     test_a_consumer_gets_what_is_on_the_disk_alone_in_order),
    (Egress, "_take", "if not self._has(position):", "if False:",
     test_message_purged_after_its_read_is_offered_to_nobody),
    (SetPublisher, "_forget_body", "self._log.reads_ahead(-len(body))", "pass",
     test_message_purged_after_its_read_is_offered_to_nobody),
    (SetPublisher, "found", "self._is_reading = False", "pass",
     test_a_consumer_gets_what_is_on_the_disk_alone_in_order),
    (SetPublisher, "_read_bodies", "if size >= most:", "if False:", test_as_many_are_read_as_one_read_may_have),
    (SnapshotRows, "_add", "expected != (key, body_digest(value))", "expected is None",
     lambda: test_a_snapshot_with_a_wrong_body_is_refused(1, "another")),
    (SnapshotRows, "_add", "is_body(key) or expected is not None", "is_body(key)",
     lambda: test_a_snapshot_with_a_wrong_body_is_refused(1, "missing")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
