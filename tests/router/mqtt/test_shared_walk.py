"""Members of a group, which join, leave and move while routers are killed: what docs/mqtt.md promises is kept."""

import pytest

from tests.router.mqtt.shared_walk import play


@pytest.mark.parametrize("seed", [1015, 1040, 1099])
def test_a_group_keeps_its_promises(seed: int) -> None:
    play(seed)
