"""Which set has which queue."""

from topic.queues.set_map import SetMap, SetPlan, hashed_plans

EU = SetPlan("eu", ("a",), "queue/eu/")


def test_a_named_set_has_the_queues_of_its_prefix_and_hashed_sets_have_the_others() -> None:
    sets = SetMap([EU, *hashed_plans("abc", 4, 3)], ["queue/"])
    assert sets.plan_of("queue/eu/orders") is EU
    found = {plan.name for number in range(100) if (plan := sets.plan_of(f"queue/{number}")) is not None}
    assert found == {"q0", "q1", "q2", "q3"}


def test_no_set_has_a_name_that_is_no_queue() -> None:
    hashed = hashed_plans("abc", 4, 3)
    assert SetMap([EU, *hashed], ["queue/", "work/"]).prefixes == ("queue/", "work/")
    assert SetMap([EU, *hashed], ["queue/"]).plan_of("topic/orders") is None
    assert SetMap([EU], ["queue/"]).plan_of("queue/us/orders") is None
    assert SetMap([EU], ["queue/"]).prefixes == ("queue/eu/",)
    assert SetMap(()).plan_of("queue/orders") is None


def test_hashed_sets_go_round_the_routers() -> None:
    plans = hashed_plans("abcd", 5, 3)
    assert [(plan.name, "".join(plan.voters)) for plan in plans] == [
        ("q0", "abc"),
        ("q1", "bcd"),
        ("q2", "cda"),
        ("q3", "dab"),
        ("q4", "abc"),
    ]


def test_the_digest_tells_maps_apart_and_not_voters() -> None:
    hashed = hashed_plans("abc", 4, 3)
    assert SetMap(hashed).digest == SetMap(hashed_plans("cba", 4, 1)).digest
    assert len({SetMap(plans).digest for plans in (hashed, hashed[:3], [EU, *hashed], [EU])}) == 4
