"""When the messages of a load are due."""

import math

from failover.client.workload import ARREARS_S, Pace

S = 10**9


def test_messages_are_due_evenly_from_a_step_on() -> None:
    pace = Pace(10.0, since=100 * S)
    assert pace.due(100 * S + S // 20) == []
    assert pace.due(100 * S + 350 * S // 1000) == [100 * S + at * S // 10 for at in (1, 2, 3)]
    assert pace.due(100 * S + 400 * S // 1000) == [100 * S + 4 * S // 10]


def test_who_is_late_makes_up_for_a_while_or_for_all() -> None:
    assert len(Pace(10.0, since=0).due(100 * S)) == ARREARS_S * 10
    assert len(Pace(10.0, since=0, arrears=math.inf).due(100 * S)) == 1000
    assert len(Pace(0.1, since=0).due(100 * S)) == 2, "a slow one is due after all"


def test_no_more_is_due_than_there_is_to_send_and_nothing_from_the_end_on() -> None:
    pace = Pace(10.0, number=7, most=9, since=0)
    assert len(pace.due(95 * S // 100)) == 2
    pace.number = 9
    assert pace.due(2 * S) == []
    assert Pace(10.0, since=0, until=S // 2, arrears=math.inf).due(5 * S)[-1] == 4 * S // 10
    assert Pace(10.0, since=5 * S).due(S) == [], "its turn has not come"


def test_without_a_rate_a_message_is_due_whenever_there_is_time() -> None:
    pace = Pace(None, since=0, until=2 * S)
    assert (pace.due(S), pace.due(S), pace.due(3 * S)) == ([S], [S], [2 * S - 1])
