"""The file of rules: who may do what, and what is wrong with it."""

from pathlib import Path

import pytest

from router.edge.guard import may_receive
from router.mesh.config import Limits
from router.security.operator import OPERATOR
from router.security.rules import EVERYTHING, Rule, Rules, RulesError, read_rules

TEXT = """\
alice: {send: [topic/orders/*], receive: [topic/orders/eu], status: all, connections: 5, durable: 0}
bob: {receive: ["*"]}
$anonymous: {}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "rules").write_text(TEXT)
    return tmp_path / "rules"


def test_what_a_rule_does_not_say_its_user_may_not(path: Path) -> None:
    rules = read_rules(path)
    assert rules == {
        "alice": Rule(("topic/orders/*",), ("topic/orders/eu",), "all", 5, 0),
        "bob": Rule((), ("*",)),
        "$anonymous": Rule(),
    }
    alice, bob = rules["alice"], rules["bob"]
    sent = {address: alice.may_send(address) for address in ("topic/orders/", "topic/orders/eu/x", "topic/orders")}
    assert sent == {"topic/orders/": True, "topic/orders/eu/x": True, "topic/orders": False}
    assert alice.may_receive("topic/orders/eu") and not alice.may_receive("topic/orders/eu/x")
    assert bob.may_receive("topic/x") and not bob.may_send("topic/x") and not bob.sees_all


@pytest.mark.parametrize(
    ("receive", "pattern", "allowed"),
    [
        (("*",), "topic/eu.#", True),
        (("topic/eu.*",), "topic/eu.*", True),
        (("topic/eu.*",), "topic/eu.x.*", True),
        (("topic/eu.*",), "topic/eu.#", False),  # it covers topic/eu
        (("topic/eu.*", "topic/eu"), "topic/eu.#", True),
        (("topic/eu.#",), "topic/eu.#", True),
        (("topic/eu.fr",), "topic/eu.*", False),
        (("topic/eu.f*",), "topic/eu.*", False),
        (("topic/eu.*",), "topic/*.fr", False),
        (("topic/eu/*",), "topic/eu/+/x", True),
        (("topic/eu/x*",), "topic/eu/+/x", False),
    ],
)
def test_a_pattern_is_allowed_if_all_that_it_covers_is(receive: tuple[str, ...], pattern: str, allowed: bool) -> None:
    assert may_receive(Rule(receive=receive), pattern) is allowed


def test_who_has_no_rule_may_do_everything_within_the_limits(path: Path) -> None:
    rules = Rules(read_rules(path), Limits(user_connections=7, user_durable=8, anonymous_durable=9), ["a"])
    carol, bob = rules.rule_of("carol"), rules.rule_of("bob")
    assert (carol.send, carol.receive, carol.sees_all) == (("*",), ("*",), True)
    assert (carol.connections, carol.durable) == (bob.connections, bob.durable) == (7, 8)
    assert (rules.rule_of("alice").connections, rules.rule_of("alice").durable) == (5, 0)
    assert rules.rule_of("") == Rule(durable=9)
    assert rules.rule_of(OPERATOR) == rules.rule_of("a") == EVERYTHING


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- alice\n", "1: a list, expected a mapping with the names of users"),
        (
            "a b: {}\n",
            '1: "a b" is not a valid user name, expected letters, digits and . _ @ -, at most 64; or $anonymous',
        ),
        ("alice: {sent: []}\n", '1: alice: unknown key "sent", expected send, receive, status, connections or durable'),
        ("alice: {send: topic/x}\n", '1: alice.send: "topic/x", expected addresses such as [topic/prices, topic/'),
        ("alice: {send: [topic/*/x]}\n", "1: alice.send: a list, expected addresses such as [topic/prices, topic/"),
        ("alice: {status: none}\n", '1: alice.status: "none", expected all or own'),
        ("alice: {durable: many}\n", '1: alice.durable: "many", expected a whole number from 0 to 1000000'),
    ],
)
def test_what_is_wrong_is_told_with_its_line(path: Path, text: str, complaint: str) -> None:
    path.write_text(text)
    with pytest.raises(RulesError) as told:
        read_rules(path)
    assert str(told.value).startswith(f"{path}:{complaint}")
