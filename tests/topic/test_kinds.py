"""Which kind of address an address is of."""

from topic.delivery.kinds import EACH_TO_ALL, EACH_TO_ONE, OF_DYNAMIC_NODES, OF_QUEUES, AddressKinds
from topic.settings import BALANCED, DYNAMIC, QUEUE, TOPIC

KINDS = AddressKinds((("news/", TOPIC), ("work/", BALANCED), ("jobs", BALANCED), ("queue/", QUEUE)))


def test_the_kind_of_an_address_is_that_of_its_beginning() -> None:
    assert KINDS.of("work/a") is EACH_TO_ONE and KINDS.of("jobs") is EACH_TO_ONE
    assert KINDS.of("news/work/a") is EACH_TO_ALL


def test_an_address_of_which_nothing_is_said_is_a_topic() -> None:
    assert KINDS.of("wor") is EACH_TO_ALL
    assert AddressKinds(()).of("work/a") is EACH_TO_ALL


def test_the_address_of_a_dynamic_node_is_balanced_and_over_with_its_subscriber() -> None:
    kind = KINDS.of(f"{DYNAMIC}a/x")
    assert kind is OF_DYNAMIC_NODES
    assert kind.name == BALANCED and kind.ends_with_subscribers and not EACH_TO_ONE.ends_with_subscribers


def test_replica_sets_decide_about_queues_alone() -> None:
    kind = KINDS.of("queue/orders")
    assert kind is OF_QUEUES and kind.in_sets
    assert not any(KINDS.of(address).in_sets for address in ("news/a", "work/a", f"{DYNAMIC}a/x"))
