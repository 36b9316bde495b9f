"""Chaos on a mesh with certificates, a secret and users: what an open mesh promises under faults it promises, too."""

from pathlib import Path

from router.amqp.sasl.scram import Verifier
from router.mesh.topology import load
from router.security.certs import issue_all
from router.security.users import UserFile, write_users
from tests.failover.chaos.scripts import TOPOLOGIES
from tests.failover.chaos.test_run import played


async def test_clients_and_neighbours_come_in_again_after_every_fault(tmp_path: Path) -> None:
    (tmp_path / "topologies").mkdir()
    closed = tmp_path / "topologies" / "closed.yaml"
    closed.write_text((TOPOLOGIES / closed.name).read_text() + "  secret: ../secret\n")
    issue_all(load(closed), tmp_path / "certs", [])
    (tmp_path / "secret").write_text("what only routers of the mesh know\n")
    write_users(tmp_path / "users", UserFile({"bob": Verifier.of("open sesame")}))
    faults = "kill: a, at: 0.5s, for: 500ms", "partition: [west, east], at: 1.5s, for: 1s"
    ending, _, told = await played(tmp_path, *faults, topology=str(closed.with_suffix("")), duration="3s")
    assert ending.clean and ending.counts["sent"] == ending.counts["accepted"] > 0
    assert ending.counts["received"] == 2 * ending.counts["accepted"]
    assert "kill a: ended" in told
