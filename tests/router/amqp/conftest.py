"""Every test of the seam watches the calls to proton."""

from collections.abc import Iterator

import pytest

from tests.router.amqp.memory import watched


@pytest.fixture(autouse=True)
def memory_is_watched() -> Iterator[None]:
    with watched():
        yield
