"""Settings shared by all tests.

Hypothesis draws the same examples in every run, so a red test stays red. Tests that start processes are in two
groups, and those of one group never run at the same time: the timers of routers count on a core (README.md, How long).
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent
GROUPS = {"failover": "one", "router": "one", "interop": "other", "processes": "other", "test_wheel.py": "other"}
"""By folder."""

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,  # shared machines are slow at times; slowness is not what these tests are about
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if group := GROUPS.get(item.path.relative_to(ROOT).parts[0]):
            item.add_marker(pytest.mark.xdist_group(group))
