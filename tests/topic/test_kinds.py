"""Which kind of address an address is of."""

from itertools import permutations

import pytest

from topic.delivery.kinds import EACH_TO_ALL, EACH_TO_ONE, OF_DYNAMIC_NODES, OF_EGRESSES, OF_QUEUES, AddressKinds
from topic.settings import BALANCED, CLOSEST, DYNAMIC, QUEUE, TOPIC, is_under

KINDS = AddressKinds((("news/", TOPIC), ("work/", BALANCED), ("jobs", BALANCED), ("queue/", QUEUE)))


def test_the_kind_of_an_address_is_that_of_its_beginning() -> None:
    assert KINDS.of("work/a") is EACH_TO_ONE and KINDS.of("jobs") is EACH_TO_ONE
    assert KINDS.of("news/work/a") is EACH_TO_ALL


def test_the_longest_prefix_counts_whatever_the_order() -> None:
    rules = ("", QUEUE), ("a", TOPIC), ("a/b", BALANCED), ("a/b/c/", CLOSEST)
    for order in permutations(rules):
        kinds = AddressKinds(order)
        assert [kinds.of(address).name for address in ("x", "a", "a/b", "a/b/c", "a/b/c/d")] == [
            QUEUE, TOPIC, BALANCED, BALANCED, CLOSEST,
        ]  # fmt: skip


def test_no_rule_is_for_the_addresses_of_the_mesh_itself() -> None:
    kinds = AddressKinds([("", QUEUE)])
    assert kinds.of(f"{DYNAMIC}a/x") is OF_DYNAMIC_NODES
    assert kinds.of("_sets/q0/out/orders") is OF_EGRESSES
    assert kinds.of("_sets/q0/in/orders") is EACH_TO_ALL
    for address in ("_sets/q0/in/orders", f"{DYNAMIC}a/x", "$management", "_topo/0/a/$management"):
        assert not is_under(address, ("",))
        assert not is_under(address, ("", "topic/"))
    assert is_under("$mine/a", ("", "$mine/"))
    assert is_under("any", ("",)) and is_under("topic/a", ("topic/",)) and not is_under("any", ("topic/",))


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        ("topic/#", "topic/work/"),
        ("topic/*/x", "topic/work/"),
        ("topic/+", "topic/work/"),
        ("topic/work/#", "topic/work"),
        ("topic/work/*", None),
        ("topic/work/a/#", None),
        ("topic/news/#", None),
        ("any/#", None),
        ("topic.#", None),
        ("queu/#", None),
        ("queue/#", "queue"),
    ],
)
def test_a_pattern_that_covers_addresses_of_two_kinds_is_known(pattern: str, other: str | None) -> None:
    """`topic/work/#` also covers `topic/work`."""
    kinds = AddressKinds([("", TOPIC), ("topic/work/", BALANCED), ("queue/", QUEUE)])
    assert kinds.other_within(pattern) == other


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
