"""Which routers can have heard that a link has ended: by contacts, one after the other."""

from failover.audit.mesh.contacts import earliest

FOREVER = 1 << 63


def test_who_is_in_contact_hears_at_once_and_passes_it_on() -> None:
    neighbours = {"a": [("b", (5, FOREVER))], "b": [("c", (5, FOREVER))]}
    assert earliest({"a": 10}, neighbours) == {"a": 10, "b": 10, "c": 10}


def test_who_comes_into_contact_hears_then() -> None:
    neighbours = {"a": [("b", (5, 8)), ("b", (20, 30))], "b": [("c", (5, 25))]}
    assert earliest({"a": 10}, neighbours) == {"a": 10, "b": 20, "c": 20}


def test_who_lost_contact_before_hears_nothing() -> None:
    neighbours = {"a": [("b", (5, 9))], "c": [("b", (5, FOREVER))]}
    assert earliest({"a": 10}, neighbours) == {"a": 10}


def test_what_two_have_said_is_heard_from_the_first() -> None:
    neighbours = {"a": [("c", (0, FOREVER))], "b": [("c", (0, FOREVER))]}
    assert earliest({"a": 20, "b": 10}, neighbours) == {"a": 20, "b": 10, "c": 10}


def test_who_joined_later_hears_after_that_if_it_still_can() -> None:
    neighbours = {"a": [("b", (0, 30)), ("c", (0, 15))], "b": [("d", (0, FOREVER))]}
    assert earliest({"a": 10}, neighbours, {"b": 20, "c": 20}) == {"a": 10, "b": 21, "d": 21}
