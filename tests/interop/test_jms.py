"""What JMS programs do, with Apache Qpid JMS. `jms/JmsClient.java` says what each of them tries."""

import subprocess

import pytest

from tests.interop.foreign import JMS, prepare
from tests.processes.mesh import RunningMesh

SEEN = {
    "client-acknowledge": "[3, 4] 3 true 2 4 none",
    "browser": "[1, 2, 3] [1, 2, 3]",
    "no-wait": "none 1 2 none",
    "durable": "[1, 2]",
    "one-tag": "1000 in order: true",
    "unsubscribe": "gone",
    "selector": "[2, 4] none",
    "kinds": "7grüße 1true 3 an object greenidtype24",
    "delay": "[soon, late]",
    "temporary-queue": "answer to request",
    "transacted": "committed committed none",
}
REFUSED = {
    "queue-selector": "queue/selector is queue and takes no filter",
    "shared": "does not support shared subscriptions",
    "temporary-topic": "only a source without an address can be dynamic",
}
"""What docs/clients.md says that the mesh refuses, today."""


def check(name: str, mesh: RunningMesh) -> str:
    prepare("jms")
    routers = ",".join(str(mesh.address(router)) for router in "abc")
    return subprocess.run([*JMS, "check", name, routers], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("name", SEEN)
def test_it_works(name: str, queues: RunningMesh) -> None:
    assert check(name, queues) == SEEN[name]


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_the_reason(name: str, queues: RunningMesh) -> None:
    told = check(name, queues)
    assert told.startswith("refused: ") and REFUSED[name] in told
