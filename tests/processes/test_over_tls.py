"""What the promise was once broken by, over TLS: the tests of other files, where routers and clients have certificates.

`test_zombie_home` has those of a home whose publisher has gone elsewhere.
"""

from collections.abc import Iterator

import pytest
import trio

from router.amqp.sasl.credentials import Credentials
from router.mesh.topology import load
from router.security.certs import issue_all
from tests.processes.clients import Clients
from tests.processes.mesh import TOPOLOGIES, RunningMesh, running
from tests.processes.test_apart import (
    stage,
    test_a_router_without_clients_that_was_alone_throws_nobody_out,
    test_what_was_accepted_where_its_publisher_is_out_of_reach_is_not_settled_there,
)
from tests.processes.test_bad_input import test_whoever_aborts_more_transfers_than_the_window_has_room_for_goes_on
from tests.processes.test_joining import test_a_publisher_that_settles_in_batches_is_not_held_up_by_who_joins
from tests.processes.test_reattaching import (
    pair,
    test_a_publisher_goes_on_with_what_is_in_doubt,
    test_a_subscriber_goes_on_with_what_it_has_in_hand,
    topic,
)

__all__ = [
    "pair",
    "stage",
    "test_a_publisher_goes_on_with_what_is_in_doubt",
    "test_a_publisher_that_settles_in_batches_is_not_held_up_by_who_joins",
    "test_a_router_without_clients_that_was_alone_throws_nobody_out",
    "test_a_subscriber_goes_on_with_what_it_has_in_hand",
    "test_what_was_accepted_where_its_publisher_is_out_of_reach_is_not_settled_there",
    "test_whoever_aborts_more_transfers_than_the_window_has_room_for_goes_on",
    "topic",
]


@pytest.fixture
def tls() -> bool:
    return True


@pytest.fixture(scope="module")
def triangle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    folder = tmp_path_factory.mktemp("certified")
    issue_all(load(TOPOLOGIES / "triangle.yaml"), folder, [])
    files = {"certificate": "{router}.pem", "key": "{router}.key", "ca": "ca.pem"}
    with running("triangle", folder, security=files) as mesh:
        yield mesh


@pytest.fixture
def clients(nursery: trio.Nursery, triangle: RunningMesh) -> Clients:
    return Clients(nursery, Credentials(ca=triangle.plan.with_name("ca.pem"), names=frozenset(triangle.routers)))
