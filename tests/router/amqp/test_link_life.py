"""Attach, answer, refuse, detach: what both ends of a link see."""

from router.amqp.format.codec import decode
from router.amqp.format.errors import NOT_FOUND, STOLEN
from router.amqp.format.performative import ATTACH, code_of, frames_of, parse
from router.amqp.format.values import EXPIRE_CONNECTION, RCV_SECOND, SND_MIXED, SND_UNSETTLED
from tests.router.amqp.pair import Pair


def test_both_ends_learn_who_the_other_is() -> None:
    pair = Pair()
    assert pair.there.events == [("open", "client")]
    assert pair.here.events == [("open", "server")]


def test_an_attach_waits_for_its_answer() -> None:
    pair = Pair()
    sender = pair.client.sender("link", "topic/x", rcv_settle_mode=RCV_SECOND, properties={"a": b"\x01", "b": 7})
    pair.pump()
    receiver = pair.there.attached[0]
    assert (receiver.name, receiver.address, receiver.is_sender) == ("link", "topic/x", False)
    assert receiver.remote_rcv_settle_mode == RCV_SECOND
    assert receiver.remote_properties == {"a": b"\x01", "b": 7}
    assert ("attached", "link") not in pair.here.events

    receiver.answer(properties={"generation": b"12345678"}, max_message_size=1000)
    pair.pump()
    assert ("attached", "link") in pair.here.events
    assert sender.answered and receiver.answered
    assert sender.remote_properties == {"generation": b"12345678"}
    assert sender.remote_max_message_size == 1000
    assert sender.remote_rcv_settle_mode == RCV_SECOND
    assert sender.remote_target and sender.remote_target.address == "topic/x"


def test_what_is_granted_for_the_terminus_at_our_end() -> None:
    pair = Pair()
    receiver = pair.client.receiver(
        "sub", "topic/x", snd_settle_mode=SND_UNSETTLED, durable=2, expiry_policy=EXPIRE_CONNECTION, timeout=60
    )
    pair.pump()
    sender = pair.there.attached[0]
    asked = sender.remote_source
    assert asked and (asked.durable, asked.expiry_policy, asked.timeout) == (2, EXPIRE_CONNECTION, 60)
    assert sender.remote_snd_settle_mode == SND_UNSETTLED

    sender.answer(durable=1, expiry_policy=EXPIRE_CONNECTION, timeout=30)
    pair.pump()
    assert receiver.remote_snd_settle_mode == SND_MIXED
    granted = receiver.remote_source
    assert granted and (granted.durable, granted.expiry_policy, granted.timeout) == (1, EXPIRE_CONNECTION, 30)


def test_an_attach_may_offer_a_capability() -> None:
    pair = Pair()
    pair.client.sender("link", "topic/x")
    pair.pump()
    receiver = pair.there.attached[0]
    receiver.offers = "PATIENCE"
    receiver.answer()
    answers = [parse(whole).fields for whole in frames_of(pair.server.data_to_send()) if code_of(whole) == ATTACH]
    assert [decode(fields[11])[0] for fields in answers] == ["PATIENCE"]


def test_a_refused_attach_is_answered_without_terminus_and_detached_with_the_error() -> None:
    pair = Pair()
    sender = pair.client.sender("link", "nowhere")
    pair.pump()
    pair.there.attached[0].refuse(NOT_FOUND, "no such address")
    pair.pump()
    assert sender.remote_target is None
    assert pair.here.events[1:] == [("attached", "link"), ("detach", "link", True, NOT_FOUND)]
    assert pair.there.events[1:] == [("attach", "link")]
    assert pair.client.links == pair.server.links == []


def test_flow_sent_right_behind_the_attach_counts_once_answered() -> None:
    pair = Pair()
    pair.client.receiver("sub", "topic/x").flow(10)
    pair.pump()
    sender = pair.there.attached[0]
    assert pair.there.credits == []
    sender.answer()
    assert sender.credit == 10
    pair.pump()
    sender.send(b"1", b"message")
    pair.pump()
    assert pair.here.messages == [b"message"]


def test_a_suspended_link_attaches_again_on_the_same_session() -> None:
    pair = Pair()
    sender, receiver = pair.sending()
    handle = sender.send(b"1", b"message")
    pair.pump()
    sender.detach(closed=False)
    pair.pump()
    assert pair.there.events[-1] == ("detach", "link", False, None)
    assert receiver.ended and pair.server.links == []

    again, _ = pair.sending()
    again.send(b"2", b"message")
    pair.pump()
    assert pair.there.tags == [b"1", b"2"]
    assert handle not in [outcome[0] for outcome in pair.here.outcomes]


def test_detaching_settles_nothing() -> None:
    pair = Pair()
    sender, receiver = pair.sending()
    sender.send(b"1", b"message")
    pair.pump()
    receiver.detach(STOLEN, closed=True)
    pair.pump()
    assert pair.here.events[-1] == ("detach", "link", True, STOLEN)
    assert pair.here.outcomes == []
    assert sender.ended


def test_calls_on_a_link_that_has_ended_do_nothing() -> None:
    pair = Pair()
    sender, receiver = pair.sending()
    sender.send(b"1", b"message")
    pair.pump()
    sender.detach()
    pair.pump()
    receiver.update(pair.there.deliveries[0], 0x24, settle=True)
    receiver.flow(5)
    assert sender.send(b"2", b"message") is None
    pair.pump()
    assert pair.here.outcomes == []


def test_closing_ends_all_links_without_detaching_them() -> None:
    pair = Pair()
    pair.sending()
    pair.client.close("amqp:connection:forced", "bye")
    pair.pump()
    assert pair.there.events[-1] == ("close", "amqp:connection:forced")
    assert pair.here.events[-1] == ("close", None)
    assert pair.client.closed and pair.server.closed
    assert not [event for event in pair.there.events if event[0] == "detach"]


def test_the_end_of_a_connection_names_the_links_that_end_with_it() -> None:
    pair = Pair()
    pair.sending()
    seen: list[str] = []
    pair.there.on_close = lambda connection, condition: seen.extend(  # type: ignore[method-assign]
        link.name for link in connection.links
    )
    pair.client.sender("another", "topic/x")
    gone = pair.client.sender("gone", "topic/x")
    pair.pump()
    gone.detach()
    pair.pump()
    pair.server.receive_eof()
    assert seen == ["link", "another"]
    assert all(link.ended for link in pair.server.links)
