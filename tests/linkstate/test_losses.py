"""Why a contact was lost: every loss names its cause, and the first link that is down."""

import pytest

from linkstate.mesh_actions import Loss
from linkstate.neighbours import Neighbour
from tests.linkstate.network import DEAD, HELLO, Network, line


def lost(network: Network, here: str, there: str) -> tuple[Loss, str]:
    """The only loss of that contact at this router."""
    [loss] = [loss for at, loss in network.losses if (at, loss.router) == (here, there)]
    return loss.cause, loss.reason


@pytest.fixture
def network() -> Network:
    """a ── b ── c"""
    network = Network(line("a", "b", "c"))
    network.connect_all()
    network.run(0.1)
    assert network.all_in_contact() and not network.losses
    return network


def test_a_neighbour_that_says_nothing_was_silent(network: Network) -> None:
    network.pause("b", 10 * DEAD)
    network.run(2 * DEAD)
    assert lost(network, "a", "b") == (Loss.SILENT, f"router b was silent for {DEAD:g} s")
    assert lost(network, "a", "c") == (Loss.SILENT, f"router b was silent for {DEAD:g} s")


def test_a_connection_that_ends_is_closed_and_others_hear_which_link_is_down(network: Network) -> None:
    network.cut("b", "c", both=True)
    network.run(2 * DEAD)
    cause, reason = lost(network, "b", "c")
    assert cause in (Loss.CLOSED, Loss.SILENT) and "router c" in reason
    assert lost(network, "a", "c") == (Loss.NO_PATH, "the link between routers b and c is down")


def test_a_router_that_ends_closes_its_connection(network: Network) -> None:
    network.restart("c", noticed=True)
    network.run(DEAD)
    assert lost(network, "b", "c") == (Loss.CLOSED, "the connection to router c ended")


def test_a_neighbour_whose_hello_has_another_incarnation_was_started_again() -> None:
    neighbour = Neighbour("c", hello=HELLO, dead=DEAD)
    neighbour.link_up(0.0)
    neighbour.receive_hello(1, True, 0.1)
    neighbour.receive_hello(2, False, 0.2)
    assert (neighbour.cause, neighbour.reason) == (Loss.RESTARTED, "router c was started again")
    neighbour.link_down(0.3)
    assert neighbour.cause is Loss.RESTARTED, "what ended the link counts, not what follows"


def test_the_end_that_hears_of_it_says_that_the_other_lost_it_first(network: Network) -> None:
    network.drop_contact("a", "c")
    network.run(DEAD)
    assert lost(network, "c", "a") == (Loss.OTHER_END, "router a ended the contact")
    assert network.meshes["c"].losses[Loss.OTHER_END] == 1
