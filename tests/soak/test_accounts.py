"""What is told of accounts that are known."""

import pytest

from tests.soak.accounts import Attachment, Fault, Published, Received, Tally, longest_pause, resumptions, tally


def published(count: int, **others: object) -> Published:
    """A message a second, each accepted half a second later."""
    accepted = [(number, number + 0.5) for number in range(count)]
    return Published("p", [float(number) for number in range(count)], accepted, **others)  # type: ignore[arg-type]


def received(*numbers: int, back: float = 0.0) -> Received:
    return Received("s", {"p": list(numbers)}, [Attachment("a", back)])


def test_all_of_it_once_and_in_order_is_clean() -> None:
    assert tally([published(3)], [received(0, 1, 2)] * 2) == Tally(sent=3)
    assert tally([published(3)], [received(0, 1, 2)] * 2).clean


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 2), Tally(sent=3, lost=1)),
        ((), Tally(sent=3, lost=3)),
        ((0, 1, 2, 1), Tally(sent=3, doubled=1)),
        ((0, 2, 1), Tally(sent=3, disorder=1)),
        ((2, 0, 1), Tally(sent=3, disorder=2)),
        ((2, 2, 0), Tally(sent=3, lost=1, doubled=1, disorder=1)),
    ],
)
def test_every_fault_is_counted(numbers: tuple[int, ...], expected: Tally) -> None:
    assert tally([published(3)], [received(*numbers)]) == expected
    assert not expected.clean


def test_only_what_was_accepted_can_be_lost() -> None:
    publisher = published(3)
    publisher.accepted.pop()
    assert tally([publisher], [received(0, 1)]) == Tally(sent=3, unanswered=1)
    publisher.otherwise[2] = "rejected"
    assert tally([publisher], [received(0, 1)]) == Tally(sent=3, not_accepted=1)


def test_what_was_sent_before_a_forgotten_subscriber_was_back_is_excused() -> None:
    subscriber = received(0, 1, back=3.5)
    assert tally([published(6)], [subscriber], forgotten=1.5) == Tally(sent=6, excused=2, lost=2)
    assert tally([published(6)], [subscriber], forgotten=4.0) == Tally(sent=6, excused=4)


def test_a_pause_is_between_acceptances() -> None:
    publisher = Published("p", accepted=[(0, 1.0), (1, 1.5), (2, 4.0)])
    assert longest_pause(publisher) == 2.5
    assert longest_pause(Published("p")) == 0.0


def test_a_resumption_counts_from_the_fault_of_its_own_router() -> None:
    publisher = published(10, attached=[Attachment("a", 0.0), Attachment("b", 5.25)])
    assert resumptions(publisher, [Fault("a", 4.75)]) == [0.75]
    assert resumptions(publisher, [Fault("c", 4.75), Fault("a", 6.0)]) == []
