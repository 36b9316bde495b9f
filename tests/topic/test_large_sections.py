"""Directories that are too large for one payload: what says them is said in several (protocol 3.3, Exchange)."""

from tests.topic.bench import Bench, reader_at
from topic.directory.entry import LinkEntry, Role
from topic.identity import Epoch, LinkIdentity, link_name
from topic.wire.outgoing import FLUSH_BYTES, Outgoing
from topic.wire.segments import Segment, decode

EPOCH = Epoch(1, "a", 1)


def test_a_section_that_is_large_comes_in_parts_and_counts_when_it_is_whole() -> None:
    """Else whoever has enough links at a router cuts it off: no payload may be larger than any."""
    bench = Bench("a", "b", meet=False)
    for number in range(900):
        reader_at(bench, "a", f"{number}".ljust(1000, "x"))
    bench.meet("a", "b")
    known, there = [], bench.cores["b"].directory
    while bench.under_way("a", "b"):
        bench.step("a", "b")
        known.append(len(list(there.entries())))
    assert len(known) > 3 and known == [0] * (len(known) - 1) + [900]


def test_parts_of_a_section_end_with_their_contact() -> None:
    bench = Bench("a", "b", meet=False)
    reader_at(bench, "a", "first")
    for number in range(900):
        reader_at(bench, "a", f"{number}".ljust(1000, "x"))
    bench.meet("a", "b")
    bench.step("a", "b")
    bench.part("a", "b")
    bench.meet("a", "b")
    bench.flow()
    assert len(list(bench.cores["b"].directory.entries())) == 901


def test_deltas_and_gossip_that_are_large_go_in_several_batches() -> None:
    identities = [LinkIdentity(f"{number}".ljust(1000, "x"), "l", "topic/x") for number in range(900)]
    entries = [LinkEntry(Role.SUBSCRIBER, link_name(identity), identity, EPOCH) for identity in identities]
    outgoing = Outgoing()
    outgoing.gossip("b", entries)
    for version, entry in enumerate(entries):
        outgoing.delta(("b",), version, 0, [entry], [])
    batches = outgoing.take()
    assert len(batches) > 6
    assert max(len(payload) for _, payload in batches) < 2 * FLUSH_BYTES
    said = [segment for _, payload in batches for segment in decode(payload)]
    told = [entry[1][0] for kind, *columns in said for entry in columns[0 if kind == Segment.GOSSIP else 2]]
    assert told == 2 * [identity.container for identity in identities]
