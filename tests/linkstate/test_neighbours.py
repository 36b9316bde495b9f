"""A link counts when both sides hear each other, and only as long."""

import pytest

from linkstate.neighbours import Neighbour, NeighbourState

DOWN, SILENT, ONE_WAY, UP = NeighbourState


@pytest.fixture
def neighbour() -> Neighbour:
    neighbour = Neighbour("b", 1, hello=0.2, dead=1.0)
    neighbour.link_up(10.0)
    return neighbour


def test_a_hello_is_due_as_soon_as_there_is_a_transport(neighbour: Neighbour) -> None:
    assert (neighbour.state, neighbour.deadline()) == (SILENT, 10.0)
    neighbour.hello_sent(10.0)
    assert neighbour.deadline() == 10.2


def test_the_first_hello_heard_is_answered_at_once(neighbour: Neighbour) -> None:
    neighbour.hello_sent(10.0)
    neighbour.receive_hello(7, False, 10.1)
    assert (neighbour.state, neighbour.heard, neighbour.hello_at) == (ONE_WAY, 7, 10.1)


def test_a_link_is_up_when_the_neighbour_says_it_hears_us(neighbour: Neighbour) -> None:
    neighbour.receive_hello(7, False, 10.1)
    neighbour.receive_hello(7, True, 10.2)
    assert (neighbour.up, neighbour.since) == (True, 10.2)


def test_a_link_is_not_up_when_the_neighbour_no_longer_hears_us(neighbour: Neighbour) -> None:
    neighbour.receive_hello(7, True, 10.1)
    neighbour.receive_hello(7, False, 10.2)
    assert neighbour.state is ONE_WAY


def test_silence_longer_than_dead_loses_the_neighbour(neighbour: Neighbour) -> None:
    neighbour.receive_hello(7, True, 10.1)
    neighbour.handle_timer(11.0)
    assert neighbour.up
    neighbour.handle_timer(11.1)
    assert (neighbour.state, neighbour.heard) == (SILENT, 0)


def test_any_traffic_counts_as_life(neighbour: Neighbour) -> None:
    neighbour.receive_hello(7, True, 10.1)
    assert neighbour.receive_traffic(10.9)
    neighbour.handle_timer(11.1)
    assert neighbour.up


def test_traffic_alone_does_not_bring_a_silent_neighbour_back(neighbour: Neighbour) -> None:
    neighbour.receive_hello(7, True, 10.1)
    neighbour.handle_timer(11.1)
    assert not neighbour.receive_traffic(11.2)
    assert neighbour.state is SILENT


def test_another_incarnation_is_found_anew(neighbour: Neighbour) -> None:
    neighbour.receive_hello(7, True, 10.1)
    neighbour.receive_hello(8, False, 10.2)
    assert (neighbour.state, neighbour.heard) == (ONE_WAY, 8)


def test_a_hello_from_before_a_restart_changes_nothing(neighbour: Neighbour) -> None:
    neighbour.receive_hello(8, True, 10.1)
    neighbour.receive_hello(7, False, 10.2)
    assert (neighbour.up, neighbour.heard) == (True, 8)


def test_a_closed_transport_loses_the_neighbour_at_once(neighbour: Neighbour) -> None:
    neighbour.receive_hello(7, True, 10.1)
    neighbour.link_down(10.2)
    assert (neighbour.state, neighbour.heard, neighbour.deadline()) == (DOWN, 0, float("inf"))


def test_a_state_lasts_since_it_began(neighbour: Neighbour) -> None:
    neighbour.receive_hello(7, False, 10.1)
    neighbour.receive_hello(8, False, 10.2)
    assert (neighbour.state, neighbour.since) == (ONE_WAY, 10.1)
