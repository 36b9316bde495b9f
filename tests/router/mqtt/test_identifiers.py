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
