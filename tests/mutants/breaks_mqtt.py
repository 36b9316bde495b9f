"""Breakages of the sessions of MQTT clients (docs/mqtt.md)."""

from collections.abc import Collection, Iterable

from router.mqtt.connection import MqttConnection
from router.mqtt.edge import MqttEdge
from router.mqtt.format.packets import PublishPacket, SubscriptionOptions
from router.mqtt.publisher import ReceivedMessage
from router.mqtt.session import MqttSession
from router.mqtt.subscriber import MqttSubscriber, SentMessage
from router.mqtt.translation import MqttContent
from tests.mutants.mutant import Method, mutant
from tests.router.mqtt.test_another_qos import (
    test_what_a_subscriber_refuses_while_its_link_is_attached_anew_it_has_refused as refused_meanwhile,
)
from tests.router.mqtt.test_another_qos import (
    test_what_was_sent_on_a_connection_is_not_sent_again_on_it as sent_once,
)
from tests.router.mqtt.test_certainty import (
    test_a_connect_that_is_read_late_takes_nothing_from_a_later_session as late_connect,
)
from tests.router.mqtt.test_certainty import (
    test_a_session_that_has_been_elsewhere_as_is_known_by_then_goes_on_from_there as elsewhere_by_now,
)
from tests.router.mqtt.test_elsewhere import (
    test_who_has_a_link_elsewhere_that_it_never_had_here_has_it_here_when_it_is_back as linked_elsewhere,
)
from tests.router.mqtt.test_elsewhere import (
    test_who_has_subscribed_elsewhere_since_does_not_go_on_with_what_was_under_way_before as subscribed_since,
)
from tests.router.mqtt.test_elsewhere import (
    test_who_was_subscribed_elsewhere_before_it_came_here_has_that_here_when_it_is_back as subscribed_before,
)
from tests.router.mqtt.test_publishing import (
    test_an_answer_waits_for_the_copy as answer_awaits_copy,
)
from tests.router.mqtt.test_releasing import (
    test_what_was_never_published_here_is_not_when_its_session_has_ended_elsewhere as never_published,
)
from tests.router.mqtt.test_sessions import (
    test_who_is_cut_off_before_it_has_its_links_again_has_no_session_there as cut_off_too_early,
)
from tests.router.mqtt.test_subscribing import (
    test_a_subscription_that_is_read_late_takes_nothing_from_who_has_it_elsewhere as late_subscribe,
)
from tests.router.mqtt.walk import scenario
from tests.router.test_order_of_actions import (
    test_what_waits_for_a_key_does_not_overtake_what_is_asked_for_as_it_is_freed as overtaken,
)
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import LinkEntry, Role
from topic.node import Node


@mutant(MqttSession, "take_over", by="2", scenario=scenario(7))
def identifiers_taken_for_free(original: Method) -> Method:
    """MQTT: an identifier that the client holds from another router is released before it is used."""

    def broken(session: MqttSession, known: Iterable[LinkEntry]) -> None:
        session.resumes = True

    return broken


@mutant(MqttSession, "is_whole", by="1", scenario=subscribed_since)
def links_elsewhere_overlooked(original: Method) -> Method:
    """MQTT: a session is not whole if its client has subscribed elsewhere since."""

    def broken(session: MqttSession, known: Iterable[LinkEntry]) -> bool:
        return bool(original(session, ()))

    return broken


@mutant(MqttEdge, "_is_elsewhere", by="2", scenario=late_subscribe)
def late_subscription_taken(original: Method) -> Method:
    """MQTT: a subscription at another router moves here only when its client is certain to be here."""

    def broken(edge: MqttEdge, session: MqttSession, address: str) -> bool:
        return False

    return broken


@mutant(MqttEdge, "_begin", by="1", scenario=late_connect)
def session_continues_unproven(original: Method) -> Method:
    """MQTT: a session continues only when its client is certain to be here."""

    def broken(
        edge: MqttEdge, session: MqttSession, connection: MqttConnection, timeout: int, *, present: bool
    ) -> None:
        connection.can_prove = not session.was_here
        original(edge, session, connection, timeout, present=present)
        connection.can_prove = True

    return broken


@mutant(MqttSession, "_is_known", by="5", scenario=scenario(7))
def copies_taken_for_messages(original: Method) -> Method:
    """MQTT: a copy of a message that is already under way is not transferred again."""

    def broken(session: MqttSession, packet: PublishPacket) -> bool:
        return False

    return broken


@mutant(MqttSession, "_received", by="2", scenario=scenario(48))
def accepted_when_received(original: Method) -> Method:
    """MQTT: PUBREC is no acceptance, because the client may still lose the message with its router."""

    def broken(session: MqttSession, number: int, reason: int) -> None:
        if (outgoing := session.sent.get(number)) is not None and not outgoing.released and outgoing.end is not None:
            outgoing.end.answer(outgoing, DeliveryOutcome.ACCEPTED)
            session._touched[outgoing.end] = None
        original(session, number, reason)

    return broken


@mutant(MqttEdge, "_take_over_links", by="1", scenario=linked_elsewhere)
def unattached_link_counts_as_ours(original: Method) -> Method:
    """MQTT: a publisher's link that is live elsewhere comes with its client, even if it was never attached here."""

    def broken(edge: MqttEdge, session: MqttSession, connection: MqttConnection, known: Collection[LinkEntry]) -> None:
        ours = {end.index for end in session.ends}
        original(edge, session, connection, [entry for entry in known if entry.index not in ours])

    return broken


@mutant(MqttSession, "is_whole", by="1", scenario=scenario(1222584))
def unattached_link_shows_client_elsewhere(original: Method) -> Method:
    """MQTT: a link elsewhere that was never attached here does not show that its client has gone there since."""

    def broken(session: MqttSession, known: Collection[LinkEntry]) -> bool:
        ours = {end.index for end in session.ends if end.epoch is None}
        return bool(original(session, known)) and not any(entry.live and entry.index in ours for entry in known)

    return broken


@mutant(MqttSession, "is_whole", by="2", scenario=subscribed_before)
def old_subscription_elsewhere_counts_as_new(original: Method) -> Method:
    """MQTT: a subscription elsewhere from before the client came does not show that the client has gone there since."""

    def broken(session: MqttSession, known: Collection[LinkEntry]) -> bool:
        ours = {end.index for end in session.ends}
        elsewhere = [entry for entry in known if entry.live and entry.index not in ours]
        return bool(original(session, known)) and not any(entry.role is Role.SUBSCRIBER for entry in elsewhere)

    return broken


@mutant(MqttSession, "resume", by="5", scenario=scenario(48))
def releases_not_repeated(original: Method) -> Method:
    """MQTT: when a client comes back, the router repeats PUBREL."""

    def broken(session: MqttSession) -> None:
        released = [outgoing for outgoing in session.sent.values() if outgoing.released]
        for outgoing in released:
            outgoing.released = False
        original(session)
        for outgoing in released:
            outgoing.released = True

    return broken


@mutant(MqttSubscriber, "resume", by="1", scenario=scenario(3))
def sent_again_though_answered(original: Method) -> Method:
    """MQTT: a message that the client has answered does not come again at the same router."""

    def broken(subscriber: MqttSubscriber, action: object) -> None:
        record = action.record  # type: ignore[attr-defined]
        if action.settled or action.state or record.key in subscriber.records:  # type: ignore[attr-defined]
            original(subscriber, action)
        else:
            subscriber.deliver([record])

    return broken


@mutant(MqttSession, "answer", by="1", scenario=answer_awaits_copy)
def answered_before_the_copy(original: Method) -> Method:
    """MQTT: a PUBACK answers only a message of the same connection, or it may count for the next message."""

    def broken(session: MqttSession, incoming: ReceivedMessage, accepted: bool, why: str) -> None:
        incoming.is_read = True
        original(session, incoming, accepted, why)

    return broken


@mutant(MqttSession, "gone", by="1", scenario=never_published)
def published_in_a_later_session(original: Method) -> Method:
    """MQTT: a message that still waited when its client left is published only if the client sends it again."""

    def broken(session: MqttSession, now: float, *, closed: bool) -> None:
        waiting = {end: list(end.waiting) for end in session.publishers.values()}
        original(session, now, closed=closed)
        for end, messages in waiting.items():
            for incoming in messages:
                end.take(incoming)

    return broken


@mutant(Node, "perform", by="1", scenario=overtaken)
def done_out_of_turn(original: Method) -> Method:
    """The core's actions on links are performed in the order in which the core gave them."""

    def broken(node: Node) -> None:
        node._performs = False
        original(node)

    return broken


@mutant(MqttSession, "carry_again", by="1", scenario=sent_once)
def sent_twice_on_a_connection(original: Method) -> Method:
    """MQTT: no message is sent twice on a connection, or the second answer counts for another message."""

    def broken(session: MqttSession, outgoing: SentMessage, content: MqttContent) -> None:
        outgoing.connection = None
        original(session, outgoing, content)

    return broken


@mutant(MqttSubscriber, "answer", by="1", scenario=refused_meanwhile)
def refusals_forgotten(original: Method) -> Method:
    """MQTT: a client's refusal stays while its link is attached anew."""

    def broken(subscriber: MqttSubscriber, outgoing: SentMessage, outcome: DeliveryOutcome) -> None:
        original(subscriber, outgoing, outcome)
        if outcome is DeliveryOutcome.REJECTED:
            subscriber._answered.pop(outgoing.record.key, None)

    return broken


@mutant(MqttSubscriber, "successor", by="1", scenario=scenario(41))
def begun_afresh_at_another_qos(original: Method) -> Method:
    """MQTT: messages under way on a subscription continue when the client asks for another QoS."""

    def broken(subscriber: MqttSubscriber, qos: int, options: SubscriptionOptions) -> MqttSubscriber:
        other: MqttSubscriber = original(subscriber, qos, options)
        other.records = {}
        return other

    return broken


@mutant(MqttEdge, "_end", by="2", scenario=cut_off_too_early)
def kept_without_its_links(original: Method) -> Method:
    """MQTT: a session is dropped if its connection ends before it has its links again."""

    def broken(edge: MqttEdge, connection: MqttConnection, packet: object) -> None:
        if connection in edge._of:
            edge._of[connection].told = None
        original(edge, connection, packet)

    return broken


@mutant(MqttSession, "is_whole", by="1", scenario=elsewhere_by_now)
def whole_though_elsewhere(original: Method) -> Method:
    """MQTT: a session does not continue here if it turns out to have been elsewhere."""

    def broken(session: MqttSession, known: Iterable[LinkEntry]) -> bool:
        return session.told is not None or bool(original(session, known))

    return broken
