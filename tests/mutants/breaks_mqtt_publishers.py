"""Breakages of MQTT publishers (docs/mqtt.md)."""

from router.mqtt.publisher import MqttPublisher, ReceivedMessage
from tests.mutants.mutant import Method, mutant
from tests.router.mqtt.test_apart import (
    test_a_copy_that_waits_leaves_what_its_client_is_sent_as_it_was as left_as_it_was,
)
from tests.router.mqtt.test_apart import (
    test_a_copy_waits_for_the_routers_that_are_out_of_contact as copy_waits,
)
from tests.router.mqtt.test_publishing import (
    test_a_link_that_is_taken_as_it_is_answered_publishes_nothing_here as taken_as_answered,
)
from tests.router.mqtt.test_releasing import (
    test_a_life_begins_with_who_is_there_when_all_know_of_it as gone_as_it_begins,
)
from tests.router.mqtt.test_releasing import (
    test_a_release_is_answered_when_all_know_of_it as when_all_know,
)
from tests.router.mqtt.test_releasing import (
    test_at_qos_1_what_reads_the_same_elsewhere_is_another_message as same_at_qos_1,
)
from tests.router.mqtt.walk import scenario
from topic.actions import LinkAction


@mutant(MqttPublisher, "tag", by="1", scenario=scenario(2))
def tags_counted(original: Method) -> Method:
    """MQTT: a copy has the same tag as the message had at another router."""

    def broken(publisher: MqttPublisher, identifier: int, message: bytes) -> bytes:
        publisher._count += 1
        return publisher._count.to_bytes(8, "big")

    return broken


@mutant(MqttPublisher, "_map", by="2", scenario=same_at_qos_1)
def equal_message_at_qos_1_counts_as_copy(original: Method) -> Method:
    """MQTT: at QoS 1, an equal message that comes at another router may be another message."""

    def broken(publisher: MqttPublisher) -> dict[bytes, int] | None:
        first, publisher.settles_first = publisher.settles_first, False
        unsettled: dict[bytes, int] | None = original(publisher)
        publisher.settles_first = first
        return unsettled

    return broken


@mutant(MqttPublisher, "_map", by="2", scenario=copy_waits)
def copies_taken_for_new_where_routers_are_missing(original: Method) -> Method:
    """MQTT: a copy waits as long as no router in contact knows its publisher, and some routers are out of contact."""

    def broken(publisher: MqttPublisher) -> dict[bytes, int] | None:
        unsettled: dict[bytes, int] | None = original(publisher)
        if publisher.known() is not None:
            return unsettled
        publisher._inherits = False
        return None

    return broken


@mutant(MqttPublisher, "gone", by="2", scenario=left_as_it_was)
def never_begun_and_missed(original: Method) -> Method:
    """MQTT: a session is whole even if it lacks a link whose attach has waited and never begun."""

    def broken(publisher: MqttPublisher, now: float, *, closed: bool) -> None:
        epoch = publisher.epoch
        original(publisher, now, closed=closed)
        publisher.epoch = epoch

    return broken


@mutant(MqttPublisher, "_get_past", by="5", scenario=scenario(0))
def a_life_that_never_ends(original: Method) -> Method:
    """MQTT: the first message that is no copy begins a new life."""

    def broken(publisher: MqttPublisher, head: object) -> None: ...

    return broken


@mutant(MqttPublisher, "release", by="1", scenario=when_all_know)
def released_before_it_is_known(original: Method) -> Method:
    """MQTT: an identifier may be used again only when the mesh knows that the client has released the message."""

    def broken(publisher: MqttPublisher, incoming: ReceivedMessage) -> None:
        original(publisher, incoming)
        publisher.host.free_identifiers([incoming])

    return broken


@mutant(MqttPublisher, "perform", by="5", scenario=taken_as_answered)
def publishes_though_taken(original: Method) -> Method:
    """MQTT: an end publishes nothing if another attach took its link at the moment of the answer."""

    def broken(publisher: MqttPublisher, action: LinkAction) -> None:
        original(publisher, action)
        if publisher.node._later.pop(publisher.go_on, True) is None:
            publisher.go_on()

    return broken


@mutant(MqttPublisher, "begin", by="1", scenario=gone_as_it_begins)
def life_begins_without_its_client(original: Method) -> Method:
    """MQTT: a life begins only if its client is still present when all routers know the life."""

    def broken(publisher: MqttPublisher, action: LinkAction) -> None:
        publisher._is_unproven = False
        original(publisher, action)

    return broken
