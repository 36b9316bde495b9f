"""How many bytes somebody may have a router hold, of what others share (protocol 5, Credit)."""

from hypothesis import given
from hypothesis import strategies as st

from topic.delivery.allowance import LEAST, Allowance
from topic.delivery.window import LENIENCE, CreditWindow

KIB = 1 << 10


def parts(*of_users: int, most: int = 400, router: int = 800) -> tuple[Allowance, list[Allowance]]:
    """The router's, and those of so many connections of each user; a connection may have 100 bytes."""
    whole = Allowance("router", router)
    users = [Allowance("user", most, whole) for _ in of_users]
    return whole, [
        Allowance("connection", 100, user) for user, count in zip(users, of_users, strict=True) for _ in range(count)
    ]


def test_a_half_is_given_credit_for() -> None:
    whole, (one, other) = parts(2, most=100)
    assert one.left == 50
    one.add(30)
    assert (one.left, other.left) == (20, 20), "50 of the user"
    other.add(40)
    assert (one.left, whole.held) == (-20, 70)
    one.add(-30)
    other.add(-40)
    assert (one.left, whole.held, whole.sharers) == (50, 0, 0)


def test_beyond_its_own_nobody_goes() -> None:
    _, (one, other) = parts(2)
    one.add(99)
    assert one.refuses == ""
    one.add(1)
    assert (one.refuses, other.refuses) == ("connection", "")


def test_when_little_is_left_who_has_more_than_its_share_is_refused() -> None:
    _, (large, *others, small) = parts(6)
    large.add(85)
    for other in others:
        other.add(50)
    small.add(10)
    assert (large.refuses, small.refuses) == ("", ""), "300 of 400, of six, are 50 each"
    others[0].add(5)
    assert (large.refuses, others[1].refuses, small.refuses) == ("user", "", "")


def test_a_user_that_has_more_than_its_share_leaves_room_for_another() -> None:
    _, (*greedy, modest) = parts(7, 1, most=700, router=700)
    for one in greedy:
        one.add(80)
    assert modest.refuses == ""
    modest.add(20)
    assert (greedy[0].refuses, modest.refuses) == ("router", "")


def test_when_nothing_is_left_everybody_is_refused() -> None:
    _, all_of_them = parts(8, most=400)
    for one in all_of_them[1:]:
        one.add(60)
    assert all_of_them[0].refuses == "user"


def test_what_is_closed_leaves_nothing_behind() -> None:
    whole, (one, other) = parts(2)
    one.add(50)
    other.add(20)
    one.close()
    one.add(-50)
    assert (whole.held, other.left) == (20, 30)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50)), max_size=60))
def test_a_whole_is_the_sum_of_its_parts(steps: list[tuple[int, int]]) -> None:
    whole, connections = parts(2, 1, 3)
    for number, size in steps:
        one = connections[number]
        one.add(-one.held if one.held and size % 3 == 0 else size)
        assert whole.held == sum(one.held for one in connections)
        users = [connections[:2], connections[2:3], connections[3:]]
        assert whole.sharers == sum(any(one.held for one in of_user) for of_user in users)


def test_credit_for_small_messages_is_taken_back_when_large_ones_come() -> None:
    window = CreditWindow(1000, 8000, 1)
    assert window.due() == 1000
    window.take([1000])
    assert (window.due(), window.credit) == (7 - 999, 7)
    window.take([1000] * 7)
    assert (window.due(), window.credit) == (0, 0)
    window.give_back([1000] * 8)
    assert (window.due(), window.credit) == (8, 8)


def test_credit_of_others_is_taken_back_when_their_connection_has_enough() -> None:
    whole = Allowance("connection", 20 * LEAST)
    windows = [CreditWindow(1000, 8 * LEAST, LEAST, whole) for _ in range(2)]
    assert [window.due() for window in windows] == [8, 8]
    windows[0].take([LEAST] * 8)
    assert windows[0].due() == 0
    windows[1].take([LEAST] * 3)
    assert (windows[1].due(), windows[1].credit) == (-5, 0)
    windows[0].give_back([LEAST] * 8)
    assert windows[1].due() == 5, "as many as there are bytes for again"


def test_everybody_has_credit_for_the_least() -> None:
    whole = Allowance("connection", 2 * LEAST)
    whole.add(LEAST)
    window = CreditWindow(1000, 8 * LEAST, KIB, whole)
    assert window.due() == LEAST // KIB


def test_beyond_its_leniency_a_window_takes_nothing() -> None:
    window = CreditWindow(1000, 1000, 1)
    window.take([LENIENCE, 999])
    assert window.refuses == ""
    window.take([1])
    assert window.refuses == "window_bytes"


def test_a_window_that_is_closed_gives_all_of_it_back() -> None:
    whole = Allowance("connection", LEAST)
    window = CreditWindow(10, LEAST, 1, whole)
    window.take([5, 6])
    window.close()
    window.take([7])
    assert whole.held == 0
