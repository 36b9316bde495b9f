"""Identifiers that a client may hold from another router (docs/mqtt.md)."""

from router.mqtt.identifiers import MOST_ASKED, MOST_SENT, Identifiers


def test_whoever_never_answers_is_asked_on_three_connections_however_often_it_was_here_before() -> None:
    identifiers = Identifiers()
    for _ in range(2 * MOST_ASKED):
        assert identifiers.to_be_let_go() == []
    for _ in range(2):
        identifiers.may_be_held()
        for _ in range(MOST_ASKED):
            assert len(identifiers.to_be_let_go()) == MOST_SENT and not identifiers
        assert identifiers.to_be_let_go() == [] and identifiers


def test_each_identifier_is_used_once_and_again_when_it_was_given_back() -> None:
    identifiers = Identifiers()
    assert [identifiers.take() for _ in range(MOST_SENT)] == list(range(1, MOST_SENT + 1))
    assert not identifiers
    identifiers.give_back(7)
    assert identifiers and identifiers.take() == 7 and not identifiers


def test_those_that_are_used_are_not_asked_for() -> None:
    identifiers = Identifiers()
    used = [identifiers.take() for _ in range(3)]
    identifiers.give_back(used[1])
    identifiers.may_be_held()
    assert identifiers.to_be_let_go() == [2, *range(4, MOST_SENT + 1)] and not identifiers
    assert identifiers.release(9) and identifiers.take() == 9 and not identifiers
