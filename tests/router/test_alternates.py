"""The routers that a client is told of: in one open, and never more than it takes."""

from types import SimpleNamespace
from typing import Any

import pytest

from failover.client.attachment.routers import MAX_ROUTERS
from router.amqp.connection import Connection
from router.mesh.config import Security
from router.plan.alternates import MOST_NAMED, Alternates
from tests.router.amqp.pair import Recorder
from topic.properties import SERVER_LIST


def alternates(count: int) -> Alternates:
    """Of a router with so many others, of which the last can be reached and has the fewest links."""
    names = [f"router{number}" for number in range(count)]
    directory = SimpleNamespace(contacts={names[-1]}, load_of=names.index)
    node: Any = SimpleNamespace(name="ours", topic=SimpleNamespace(directory=directory))
    routers = {name: SimpleNamespace(amqp=f"{name}.frankfurt.exchange.example.com:5672") for name in names}
    mesh: Any = SimpleNamespace(plan=SimpleNamespace(routers=routers, members=frozenset(routers)))
    return Alternates(node, mesh, Security())


@pytest.mark.parametrize("count", [200, 1000])
def test_a_client_takes_the_open_of_a_router_of_a_large_mesh(count: int) -> None:
    servers = alternates(count)()
    ours = Connection(Recorder(), container="mesh", server=True, properties={SERVER_LIST: servers})
    client = Connection(Recorder(), container="client", server=False)
    client.open()
    while (said := client.data_to_send()) or ours.has_output:
        ours.receive(said, 0.0)
        client.receive(ours.data_to_send(), 0.0)
    told = client.remote_properties[SERVER_LIST]
    assert len(told) == min(count, MOST_NAMED)
    assert told[0]["network-host"] == f"router{count - 1}.frankfurt.exchange.example.com"
    assert MOST_NAMED == MAX_ROUTERS
    for connection in (ours, client):
        connection.release()
