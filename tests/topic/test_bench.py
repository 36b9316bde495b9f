"""The bench itself (`tests.topic.bench`)."""

from tests.topic.bench import Bench


def test_held_messages_end_with_their_router() -> None:
    """One of the two has noticed before that their contact is lost."""
    bench = Bench("a", "b")
    bench.hold("b", "a")
    bench.lose("a", "b")
    bench.subscriber("b")
    assert bench.under_way("b", "a") > 0
    bench.kill("b")
    assert bench.under_way("b", "a") == bench.under_way("a", "b") == 0
