"""The handshake: what makes a contact, what ends it, and what is too old to do either.

a: number a1, a2, ...        b: number b1, b2, ...        a GREET is (sender's number, what it takes for ours)
"""

import pytest

from linkstate.contact import LAST, NUMBER_BITS, Contact, ContactChange
from linkstate.frames import GREET, encode_header
from linkstate.mesh_actions import Loss
from tests.linkstate.network import HELLO, Network, line

A1 = 100 << NUMBER_BITS | 1
B1, B2, B3 = (200 << NUMBER_BITS | n for n in (1, 2, 3))


@pytest.fixture
def contact() -> Contact:
    """The end at a, incarnation 100, of a contact with b, incarnation 200."""
    contact = Contact("b", 100, greet_interval=0.2)
    contact.reached(200, 1.0)
    return contact


@pytest.fixture
def established(contact: Contact) -> Contact:
    assert contact.receive_greet(B1, A1, True, 1.1) is ContactChange.MADE
    return contact


def test_a_greet_goes_out_at_once_and_again_until_it_is_answered(contact: Contact) -> None:
    assert contact.greet_at == 1.0
    contact.greet_sent(1.0)
    assert contact.greet_at == 1.2


def test_a_greet_that_does_not_name_us_is_answered(contact: Contact) -> None:
    contact.greet_sent(1.0)
    assert contact.receive_greet(B1, 0, False, 1.1) is None
    assert (contact.theirs, contact.established, contact.greet_at) == (B1, False, 1.1)


def test_one_that_takes_a_former_contact_for_established_is_greeted(contact: Contact) -> None:
    contact.greet_sent(1.0)
    assert contact.receive_greet(B1, A1 - 1, True, 1.1) is None
    assert contact.greet_at == 1.1


def test_a_greet_that_names_us_makes_the_contact_and_tells_an_end_that_waits(contact: Contact) -> None:
    assert contact.receive_greet(B1, A1, False, 1.1) is ContactChange.MADE
    assert contact.greet_at == 1.1
    contact.greet_sent(1.1)
    assert contact.greet_at == float("inf")


def test_an_established_greet_needs_no_answer(established: Contact) -> None:
    assert established.greet_at == float("inf")


def test_data_with_the_right_pair_makes_the_contact(contact: Contact) -> None:
    contact.receive_greet(B1, 0, False, 1.1)
    assert contact.receive_data(B1, A1) == (True, ContactChange.MADE)
    assert contact.receive_data(B1, A1) == (True, None)


@pytest.mark.parametrize("pair", [(B2, A1), (B1, A1 + 1), (B1, 0), (0, A1)])
def test_data_with_another_pair_is_not_of_this_contact(established: Contact, pair: tuple[int, int]) -> None:
    assert established.receive_data(*pair) == (False, None)


def test_data_of_a_contact_that_only_the_other_end_had_is_dropped(contact: Contact) -> None:
    """b established (b1, a1), sent data and lost it; its b2 reaches us before that data does."""
    contact.receive_greet(B1, 0, False, 1.1)
    contact.receive_greet(B2, A1, False, 1.2)
    assert contact.receive_data(B1, A1) == (False, None)
    assert contact.receive_data(B2, A1) == (True, None)


def test_a_higher_number_of_theirs_ends_the_contact_and_renews_ours(established: Contact) -> None:
    assert established.receive_greet(B2, A1, False, 2.0) is ContactChange.LOST
    assert (established.ours, established.theirs, established.greet_at) == (A1 + 1, B2, 2.0)


def test_a_greet_that_ends_the_contact_makes_none_though_it_guesses_our_next_number(established: Contact) -> None:
    """Nobody has been told that: a router of the mesh that is evil may say so, and found two contacts in one."""
    assert established.receive_greet(B2, A1 + 1, True, 2.0) is ContactChange.LOST
    assert not established.established
    assert established.receive_greet(B2, A1 + 1, True, 2.1) is ContactChange.MADE


def test_a_higher_number_of_theirs_does_not_renew_ours_before_the_contact_is_made(contact: Contact) -> None:
    contact.receive_greet(B1, 0, False, 1.1)
    assert contact.receive_greet(B2, 0, False, 1.2) is None
    assert (contact.ours, contact.theirs) == (A1, B2)


def test_a_lower_number_of_theirs_is_ignored_in_contact(contact: Contact) -> None:
    assert contact.receive_greet(B2, A1, True, 1.1) is ContactChange.MADE
    assert contact.receive_greet(B1, A1, True, 1.2) is None
    assert (contact.theirs, contact.established, contact.greet_at) == (B2, True, float("inf"))


def test_a_lower_number_of_theirs_is_believed_without_a_contact_and_makes_none_of_what_is_old(contact: Contact) -> None:
    """The higher one may be forged; or the lower one is of a contact that only the other end had."""
    contact.receive_greet(B2, 0, False, 1.1)
    contact.greet_sent(1.1)
    for named in (A1, A1 + 2):
        contact.receive_greet(B3, 0, False, 1.2)
        assert contact.receive_greet(B1, named, True, 1.2) is None
    assert (contact.ours, contact.theirs, contact.established, contact.greet_at) == (A1 + 2, B1, False, 1.2)
    assert contact.receive_data(B1, A1) == contact.receive_data(B1, A1 + 1) == (False, None)
    assert contact.receive_greet(B2, 0, False, 1.3) is None
    assert contact.receive_greet(B2, A1 + 2, False, 1.4) is ContactChange.MADE


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("before", [0.0, 1.0])
def test_a_forged_number_parts_honest_routers_for_a_moment(before: float, both: bool) -> None:
    """a ── evil ── c, and evil says once that it is c, in its last number; perhaps the same to c."""
    network = Network(line("a", "evil", "c"))
    network.connect_all()
    network.run(0.1 + before)
    for here, there in [("a", "c"), ("c", "a")][: 1 + both]:
        forged = network.meshes[here].routes[there].incarnation << NUMBER_BITS | LAST
        greet = encode_header([GREET, there, 2, 0, [[here, forged, 0, 0, 0]]])
        network.meshes[here].receive_channel("evil", greet, network.now)
        assert there not in network.meshes[here].contacts
    network.run(3 * HELLO)
    assert network.all_in_contact()


def test_losing_the_path_ends_the_contact_and_its_numbers(established: Contact) -> None:
    assert established.lost() is ContactChange.LOST
    assert established.receive_greet(B1, A1, True, 2.0) is None
    assert established.receive_data(B1, A1) == (False, None)
    established.reached(200, 3.0)
    assert established.receive_data(B1, A1) == (False, None)
    assert established.receive_greet(B1, A1, True, 3.1) is None


def test_losing_the_path_before_the_contact_is_made_keeps_our_number(contact: Contact) -> None:
    """The other end may have made it: it then resumes as the same contact, since nothing was lost in it."""
    contact.receive_greet(B1, 0, False, 1.1)
    assert contact.lost() is None
    contact.reached(200, 2.0)
    assert contact.receive_data(B1, A1) == (True, ContactChange.MADE)


def test_a_dropped_contact_begins_anew_at_once(established: Contact) -> None:
    assert established.drop(2.0) is ContactChange.LOST
    assert (established.ours, established.greet_at) == (A1 + 1, 2.0)
    assert established.receive_greet(B2, A1 + 1, False, 2.1) is ContactChange.MADE


def test_dropping_what_is_not_made_changes_nothing(contact: Contact) -> None:
    contact.greet_sent(1.0)
    assert contact.drop(1.1) is None
    assert (contact.ours, contact.greet_at) == (A1, 1.2)


def test_only_the_incarnation_that_is_reached_is_listened_to(contact: Contact) -> None:
    restarted = 201 << NUMBER_BITS | 1
    assert contact.receive_greet(restarted, A1, True, 1.1) is None
    contact.lost()
    contact.reached(201, 2.0)
    assert contact.receive_greet(restarted, A1, True, 2.1) is ContactChange.MADE


def test_nobody_is_heard_to_whom_there_is_no_path() -> None:
    unreached = Contact("b", 100, greet_interval=0.2)
    assert unreached.receive_greet(5, A1, True, 1.1) is None and unreached.theirs == 0
    assert unreached.receive_data(0, A1) == (False, None)


def test_router_that_used_up_our_numbers_has_no_contact() -> None:
    """a ── b, and b may be evil: it makes and ends contacts as fast as it can."""
    network = Network(line("a", "b"))
    network.meshes["a"]._contacts._contacts["b"].ours += LAST - 2
    network.connect_all()
    network.run(1.0)
    assert network.all_in_contact()
    network.drop_contact("a", "b")
    network.run(1.0)
    assert [(lost.cause, lost.router) for here, lost in network.losses if here == "a"] == [(Loss.BROKEN, "b")]
    before = len(network.bodies("a", "b", "channel"))
    network.run(10 * HELLO)
    assert not network.meshes["a"].contacts and not network.meshes["b"].contacts, "b is told"
    assert len(network.bodies("a", "b", "channel")) - before <= 11, "and that not all the time"


def test_in_the_last_number_nothing_makes_a_contact(established: Contact) -> None:
    established.ours += LAST - 2
    last = established.ours + 1
    assert established.receive_greet(B2, A1, True, 2.0) is ContactChange.LOST
    assert established.ours == last
    for number in (0, B2, B3):
        assert established.receive_greet(number, last, True, 2.1) is None
        assert established.receive_data(number, last) == (False, None)
    assert established.drop(2.2) is None and established.lost() is None
