"""Model clients of MQTT, who are cut off, move, and lose their routers: what docs/mqtt.md promises is kept."""

import pytest

from tests.router.mqtt.walk import PARTING, REFUSING, SCARCE, WIDE, play

SEEDS = 12
FAILED = (420273, 614279, 618974, 618387, 721937, 723028, 724270, 1123877, 1175982, 1222584)
"""What others have found: as an attach was answered, the next one came about, and then the echo of the first; an
outcome that was on its way as its message was released, twice; a release that two attaches stated in turn; a goodbye
that was read late; a gate of an attach that was over; a session that had been elsewhere, as was known late; one that
had not been, as was known late; a life that only who had not been told of it by its home knew, and told nobody; and
an attach that had not begun, of a publisher that was known to be elsewhere."""


@pytest.mark.parametrize(
    "seed",
    [
        *range(SEEDS),
        *range(WIDE + SEEDS, WIDE + 2 * SEEDS),
        *range(SCARCE, SCARCE + SEEDS),
        *range(REFUSING, REFUSING + SEEDS),
        *range(PARTING, PARTING + SEEDS),
        *FAILED,
    ],
)
def test_clients_are_kept_the_promise_wherever_they_go(seed: int) -> None:
    play(seed)
