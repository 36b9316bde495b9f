"""Large payloads: cut, joined, passed on by relays as they come; neither link state nor contacts suffer from them."""

from sys import getrefcount

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkstate.channel import BUDGET
from linkstate.chunks import CHUNK, Chunk, Joiner, OversizedError, cut
from linkstate.clock import HybridClock
from linkstate.contact import NUMBER_BITS
from linkstate.frames import (
    DATA,
    GREET,
    PART,
    AgedAdvertisement,
    Hello,
    bin_prefix,
    decode_channel,
    encode_entries,
    encode_header,
    encode_hello,
)
from linkstate.mesh import Mesh
from linkstate.mesh_actions import CHANNEL, LINKSTATE, Full, Loss, Received, Room, Transmit
from linkstate.outbox import Outbox
from tests.linkstate.network import DEAD, DELAY, HELLO, MAX_PAYLOAD, Network, line, ring
from tests.plans import file

MEGABYTE = 1_000_000
sizes = st.one_of(st.integers(0, 100), st.integers(-2, 2).map(CHUNK.__add__), st.integers(0, 5 * CHUNK))


def large(name: str, size: int = 10 * CHUNK) -> bytes:
    return name.encode().ljust(size, b".")


def narrow(network: Network, rate: float) -> Network:
    network.connect_all()
    network.run(0.1)
    assert network.all_in_contact()
    network.rate = rate
    return network


def arrived(network: Network, here: str) -> list[bytes]:
    return [received.payload.rstrip(b".") for router, received in network.received if router == here]


@given(st.lists(sizes, min_size=1, max_size=4))
def test_joiner_restores_the_payload(lengths: list[int]) -> None:
    payloads = [bytes([number]) * length for number, length in enumerate(lengths)]
    joiner = Joiner(5 * CHUNK)
    chunks = [chunk for payload in payloads for chunk in cut(payload)]
    joined = [joiner.join(chunk) for chunk in chunks]
    assert [payload for payload in joined if payload is not None] == payloads
    assert all(len(chunk.content) <= CHUNK for chunk in chunks)


def test_a_payload_that_is_not_large_is_not_copied() -> None:
    payload = bytes(CHUNK)
    [chunk] = cut(payload)
    assert chunk.content is payload
    assert Joiner(CHUNK).join(chunk) is payload


def test_no_more_is_kept_than_a_payload_may_have() -> None:
    joiner = Joiner(2 * CHUNK)
    for _ in range(2):
        assert joiner.join(Chunk(bytes(CHUNK), more=True)) is None
    with pytest.raises(OversizedError):
        joiner.join(Chunk(b"x"))


@pytest.mark.parametrize("size", [0, 1])
def test_neither_bodies_nor_chunks_are_kept_with_what_has_come_of_a_payload(size: int) -> None:
    body = bytes(MEGABYTE)
    joiner = Joiner(2000)
    references = getrefcount(body)
    for _ in range(2000):
        assert joiner.join(Chunk(memoryview(body)[:size], more=True)) is None
    assert getrefcount(body) == references
    assert joiner.join(Chunk(b"")) == bytes(2000 * size)


def test_link_state_goes_before_data_and_data_in_order() -> None:
    outbox = Outbox()
    for body in (b"one", b"two", b"three"):
        outbox.put(CHANNEL, body)
    assert outbox.take(6) == (CHANNEL, [b"one", b"two"])
    outbox.put(LINKSTATE, b"hello")
    assert outbox.take(1) == (LINKSTATE, [b"hello"])
    assert outbox.take(1) == (CHANNEL, [b"three"])
    assert outbox.take(1) is None


def test_body_that_would_be_too_long_goes_with_the_next_one() -> None:
    """Who reads it waits for all of it: so an answer does not wait for the chunk behind it."""
    outbox = Outbox()
    for body in (b"answer", b"a whole chunk", b"another"):
        outbox.put(CHANNEL, body)
    assert outbox.take(13) == (CHANNEL, [b"answer"])
    assert outbox.take(13) == (CHANNEL, [b"a whole chunk"])
    assert outbox.take(13) == (CHANNEL, [b"another"])


def test_a_relay_passes_on_the_first_chunk_before_it_has_the_last() -> None:
    """a ── b ── c: at either link's rate the payload takes 0.66 s, and hardly more over both"""
    network = narrow(Network(line("a", "b", "c")), MEGABYTE)
    network.send("a", ["c"], large("payload"))
    network.run(10 * CHUNK / MEGABYTE + 0.3)
    assert arrived(network, "c") == [b"payload"]
    relayed = [decode_channel(body) for body in network.bodies("b", "c", "channel")]
    assert all(len(frame.raw_chunk()) <= CHUNK + 5 for frames in relayed for frame in frames)


def test_a_payload_that_takes_longer_than_dead_costs_no_contact() -> None:
    network = narrow(Network(line("a", "b")), MEGABYTE / 10)
    contact = network.ledger.current["a", "b"]
    network.send("a", ["b"], large("payload"))
    network.run(5 * DEAD)
    assert arrived(network, "b") == []
    network.run(5 * DEAD)
    assert arrived(network, "b") == [b"payload"]
    assert network.ledger.current["a", "b"] == contact


def test_a_router_to_which_too_much_is_under_way_is_full_until_some_of_it_is_acknowledged() -> None:
    """a ── b: twice the budget takes 4.2 s; what comes back, nothing"""
    network = narrow(Network(line("a", "b")), MEGABYTE)
    for number in range(2 * BUDGET // CHUNK):
        network.send("a", ["b"], large(str(number), CHUNK))
    assert network.filled == [("a", Full("b"))]
    network.run(5.0)
    assert network.filled == [("a", Full("b")), ("a", Room("b"))]


def test_router_is_not_late_if_its_answer_waits_behind_other_payloads() -> None:
    """a ── b ── c: b's own payload takes 0.66 s"""
    network = narrow(Network(line("a", "b", "c")), MEGABYTE)
    network.send("b", ["a"], large("payload"))
    network.send("c", ["a"], b"answer")
    network.doubt("a", "c")
    network.run(DEAD)
    assert arrived(network, "a") == [b"payload", b"answer"]
    assert network.losses == []


def test_router_is_not_asked_if_its_answer_waits_here() -> None:
    network = narrow(Network(line("a", "b")), MEGABYTE)
    mesh = network.meshes["a"]
    mesh.out.append(Received("b", b"answer"))
    mesh.doubt("b", "owes an answer", network.now)
    assert mesh.out == [Received("b", b"answer")]
    mesh.out.clear()
    mesh.doubt("b", "owes an answer", network.now)
    assert [type(action) for action in mesh.out] == [Transmit]


def test_router_with_nothing_under_way_is_late() -> None:
    network = narrow(Network(line("a", "b", "c")), MEGABYTE)
    network.send("c", ["a"], b"before")
    network.run(DELAY * 10)
    before = network.ledger.current["a", "c"]
    network.doubt("a", "c")
    network.doubt("c", "a")
    network.run(DEAD)
    late = {(here, lost.router, lost.reason) for here, lost in network.losses if lost.cause is Loss.LATE}
    assert late and late <= {("a", "c", "router c owes an answer"), ("c", "a", "router a owes an answer")}
    assert network.all_in_contact()
    assert network.ledger.current["a", "c"] != before
    assert arrived(network, "a") == [b"before"], "a question is no payload"


def test_a_change_of_path_within_a_payload_sends_again_only_what_has_not_come() -> None:
    """a ── b ── c and a ── c: the direct link breaks when half of the payload is through"""
    network = narrow(Network(ring("a", "b", "c")), MEGABYTE)
    network.send("a", ["c"], large("payload"))
    network.run(5 * CHUNK / MEGABYTE + 2 * DELAY)
    network.cut("a", "c")
    network.run(2 * DEAD)
    assert arrived(network, "c") == [b"payload"]
    again = sum(map(len, network.bodies("a", "b", "channel")))
    assert 4 * CHUNK < again < 8 * CHUNK


def test_a_contact_that_ends_within_a_payload_leaves_none_of_it_to_the_next() -> None:
    network = narrow(Network(line("a", "b")), MEGABYTE)
    network.send("a", ["b"], large("old"))
    network.run(5 * CHUNK / MEGABYTE)
    network.drop_contact("b", "a")
    network.run(DEAD)
    network.send("a", ["b"], large("new"))
    network.run(DEAD)
    assert arrived(network, "b") == [b"new"]
    network.ledger.check_pairs()


def test_a_chunk_of_an_old_contact_is_not_joined_to_a_new_one() -> None:
    """b ── a, and what b says is written by hand: it drops the contact within a payload"""
    a, b = 100, 200
    mesh = Mesh("a", a, file("ab", "ab"), HybridClock(), hello=HELLO, dead=DEAD, max_payload=MAX_PAYLOAD)
    mesh.link_up("b", 0.0)
    flood = encode_entries(0, [AgedAdvertisement("b", b, 1, 0, (("a", a, 1),))])
    mesh.receive_linkstate("b", encode_hello(Hello("b", b, 0, a, 0)) + flood, 0.0)

    def says(kind: int, ours: int, theirs: int, x: int, content: bytes = b"") -> None:
        header = encode_header([kind, "b", 2, 0, [["a", (b << NUMBER_BITS) + ours, (a << NUMBER_BITS) + theirs, x, 0]]])
        mesh.receive_channel("b", header + (bin_prefix(len(content)) + content if content else b""), 0.0)

    says(GREET, 1, 1, 1)
    says(PART, 1, 1, 1, b"old ")
    says(GREET, 2, 1, 0)
    assert not mesh.contacts
    says(DATA, 2, 2, 1, b"new")
    assert [action.payload for action in mesh.out if isinstance(action, Received)] == [b"new"]


def test_a_payload_that_is_too_large_costs_its_sender_the_contact() -> None:
    network = narrow(Network(line("a", "b")), 100 * MEGABYTE)
    network.send("a", ["b"], large("payload", MAX_PAYLOAD + 1))
    network.run(DEAD)
    here, lost = network.losses[0]
    assert (here, lost.router, lost.cause) == ("b", "a", Loss.BROKEN)
    assert network.ledger.current["b", "a"] == ("b", "a", 2)


loads = st.lists(st.tuples(st.integers(0, 2), sizes), min_size=1, max_size=12)


@settings(max_examples=50)
@given(loads, st.sampled_from([0.1, 0.3, 1.0, 10.0]), st.integers(0, 2**16))
def test_without_a_fault_no_load_costs_a_contact(load: list[tuple[int, int]], rate: float, seed: int) -> None:
    """a ── b ── c"""
    network = narrow(Network(line("a", "b", "c"), seed), rate * MEGABYTE)
    for number, (router, size) in enumerate(load):
        here = network.routers[router]
        network.send(here, [other for other in network.routers if other != here], large(f"{number} ", size + 10))
        network.run(0.1)
    network.run(2 * DEAD + 3 * sum(size for _, size in load) / network.rate)
    assert set(network.ledger.current.values()) == {
        (here, there, 1) for here in network.routers for there in network.routers if here != there
    }
    for contact in network.ledger.current.values():
        assert network.ledger.received[contact] == network.ledger.sent[contact[1], contact[0], 1]
