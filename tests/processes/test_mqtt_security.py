"""Who is let in by the listener for MQTT, where a router asks: users, certificates, rules."""

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio

from router.amqp.sasl.credentials import Credentials
from router.amqp.sasl.scram import Verifier
from router.amqp.tls import TlsStream
from router.mesh.topology import load
from router.mqtt.format.values import V3, Reason
from router.security.certs import issue_all
from router.security.users import UserFile, write_users
from tests.hangs import HANGS_S
from tests.processes.mesh import TOPOLOGIES, RunningMesh, running
from tests.router.mqtt import by_hand

PASSWORD = b"open sesame"
ROUTERS = frozenset("ab")


@attrs.frozen
class Secured:
    mesh: RunningMesh
    folder: Path

    async def answer(self, said: bytes, name: str = "") -> bytes:
        """By somebody whose certificate has this name."""
        certs = self.folder / "certs"
        certificate, key = (certs / f"{name}.pem", certs / f"{name}.key") if name else (None, None)
        context = Credentials("", "", certs / "ca.pem", certificate, key, names=ROUTERS).context()
        address = self.mesh.mqtt("a")
        below = await trio.open_tcp_stream(address.host, address.port)
        async with await TlsStream.over(below, context) as stream:
            await stream.send_all(said)
            with trio.fail_after(HANGS_S):
                return bytes(await stream.receive_some())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("certified")
    issue_all(load(TOPOLOGIES / "pair.yaml"), folder / "certs", ["alice"])
    write_users(folder / "users", UserFile({"bob": Verifier.of(PASSWORD.decode())}))
    (folder / "rules.yaml").write_text("bob: {send: [topic/bob], receive: [topic/bob]}\n")
    files = {"certificate": "certs/{router}.pem", "key": "certs/{router}.key", "ca": "certs/ca.pem"}
    files |= {"users": "users", "rules": "rules.yaml"}
    with running("pair", folder, security=files, mqtt=True) as mesh:
        yield Secured(mesh, folder)


async def test_a_user_shows_a_password_or_a_certificate(secured: Secured) -> None:
    right = by_hand.connect("c", V3, user="bob", password=PASSWORD)
    assert await secured.answer(right) == b"\x20\x02\x00\x00"
    assert await secured.answer(by_hand.connect("c", V3), "alice") == b"\x20\x02\x00\x00"
    for user, password in (("bob", b"wrong"), ("eve", PASSWORD), ("bob", None), ("bob", b"\xff")):
        assert await secured.answer(by_hand.connect("c", V3, user=user, password=password)) == b"\x20\x02\x00\x04"
    assert await secured.answer(by_hand.connect("c", V3)) == b"\x20\x02\x00\x05"
    assert Reason.NOT_AUTHORIZED in await secured.answer(by_hand.connect("c"))
    assert "is unknown, or the password is wrong" in secured.mesh.log("a")


async def test_a_user_may_do_what_his_rule_says(secured: Secured) -> None:
    let_in = by_hand.connect("c", V3, user="bob", password=PASSWORD)
    asked = by_hand.subscribe(5, [("topic/bob", 1), ("topic/alice", 1)], V3)
    refused = by_hand.publish("topic/alice", b"m", 1, 6, V3)
    heard = b""
    address = secured.mesh.mqtt("a")
    context = Credentials("", "", secured.folder / "certs" / "ca.pem", names=ROUTERS).context()
    below = await trio.open_tcp_stream(address.host, address.port)
    async with await TlsStream.over(below, context) as stream:
        await stream.send_all(let_in + asked)
        with trio.fail_after(HANGS_S):
            while b"\x90\x04\x00\x05\x01\x80" not in heard:
                heard += await stream.receive_some()
            await stream.send_all(refused)
            assert await stream.receive_some() == b"", "3.1.1 has no other word"
    assert "may not send to 'topic/alice'" in secured.mesh.log("a")
