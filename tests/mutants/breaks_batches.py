"""Breakages of batches: withheld deliveries that proceed together (protocol 5, Budgets)."""

from collections.abc import Callable

from tests.mutants.mutant import Method, mutant
from tests.topic import test_budgets
from topic.delivery.record import HomeStream, Record, State
from topic.home.publishing import Publishing

IN_ORDER = test_budgets.test_what_waited_goes_on_in_order_whatever_it_is
Broken = Callable[[Publishing, HomeStream, Record, int], list[Record]]


def without(what: str) -> Broken:
    """`Publishing._taken_with`, without this condition that ends a batch."""

    def broken(publishing: Publishing, stream: HomeStream, first: Record, room: int) -> list[Record]:
        withheld, batch = stream.withheld, [stream.withheld.popleft()]
        room -= first.size
        while withheld:
            record = withheld[0]
            ends = {
                "room": room <= 0,
                "size": max(first.size, record.size) > 2 * publishing._piece,
                "state": record.state is not State.IN_DOUBT,
                "questions": stream.is_questioned(record.key),
                "presettled": record.presettled != first.presettled,
                "chosen": record.chosen != first.chosen,
            }
            if any(holds for name, holds in ends.items() if name != what) or not publishing._enters(record):
                break
            batch.append(withheld.popleft())
            room -= record.size
        return batch

    return broken


@mutant(
    Publishing, "_taken_with", by="5", scenario=test_budgets.test_publishers_that_wait_go_on_in_turn_a_batch_at_a_time
)
def batches_without_end(_: Method) -> Method:
    """5 Budgets: publishers that have waited proceed in turn."""
    return without("room")


@mutant(Publishing, "_taken_with", by="1", scenario=IN_ORDER)
def ended_in_a_batch(_: Method) -> Method:
    """5 Time to live: a delivery that ends while it waits is not forwarded with the deliveries in front of it."""
    return without("state")


@mutant(
    Publishing,
    "_taken_with",
    by="1",
    scenario=test_budgets.test_somebody_who_asked_about_the_second_of_them_is_answered_first,
)
def asked_about_in_a_batch(_: Method) -> Method:
    """5 Reused tags: routers that asked about the key are answered first, even behind other waiting deliveries."""
    return without("questions")


@mutant(Publishing, "_taken_with", by="1", scenario=IN_ORDER)
def presettled_with_others(_: Method) -> Method:
    """5 Budgets: presettled deliveries get no answer, even if they have waited with others."""
    return without("presettled")


@mutant(
    Publishing,
    "_taken_with",
    by="1",
    scenario=test_budgets.test_what_somebody_may_have_does_not_go_on_with_what_is_new,
)
def doubtful_with_new(_: Method) -> Method:
    """12 Balanced: a delivery that a subscriber may have is not forwarded in one batch with new deliveries."""
    return without("chosen")
