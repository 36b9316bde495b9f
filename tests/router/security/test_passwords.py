"""Passwords that are wrong, wherever they are said in words: all the same to who says them, and to who counts them."""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from router.amqp.format.errors import AmqpError
from router.amqp.sasl.layer import INIT, SASL_HEADER, sasl_frame
from router.amqp.sasl.scram import LONGEST, Verifier
from router.amqp.sasl.server import PLAIN, SaslServer
from router.http.exchange import WebAnswer, WebCaller, WebRequest, told
from router.http.site import Page, Site
from router.mesh.topology import load
from router.mqtt.fields import FieldReader
from router.mqtt.listener import Door
from router.mqtt.packets import ConnectPacket, read_packet
from router.mqtt.values import MqttError, Reason
from router.security.doors import Doors
from router.security.users import UserFile, write_users
from tests.router.mqtt import by_hand

TOPOLOGY = "{mesh: m, routers: {a: {amqp: 127.0.0.1:0}}, security: {users: users, secret: secret, plain: in-clear}}"
WRONG = {"another": "wrong", "a control character": "x\x01y", "too long": "x" * (LONGEST + 1)}


@pytest.fixture
def doors(tmp_path: Path) -> Doors:
    (tmp_path / "mesh.yaml").write_text(TOPOLOGY)
    (tmp_path / "secret").write_text("the secret of this mesh")
    write_users(tmp_path / "users", UserFile({"bob": Verifier.of("open sesame", b"salt", 4096)}))
    return Doors(load(tmp_path / "mesh.yaml"), "a")


def by_sasl(doors: Doors, user: str, password: str, denied: Callable[[], None]) -> bool:
    server = SaslServer(doors._offer(""), denied)
    try:
        server.receive(SASL_HEADER + sasl_frame(INIT, PLAIN, f"\0{user}\0{password}".encode()))
    except AmqpError as error:
        assert "is not known, or its password is wrong" in str(error)
    return server.done


def by_mqtt(doors: Doors, user: str, password: str, denied: Callable[[], None]) -> bool:
    said = by_hand.connect("c", user=user, password=password.encode())
    reader = FieldReader(said[1:])
    reader.number()
    packet = read_packet(said[0], reader.rest(), 5)
    assert isinstance(packet, ConnectPacket)
    try:
        return Door("", denied, doors, passwords=True, anybody=False).user_of(packet) == user
    except MqttError as error:
        assert error.reason is Reason.BAD_PASSWORD
        return False


async def page(request: WebRequest, caller: WebCaller) -> WebAnswer:
    return told(200, "the page")


async def by_http(doors: Doors, user: str, password: str, denied: Callable[[], None]) -> bool:
    site = Site("127.0.0.1", doors, {"/": Page(page)}, lambda user: False, anybody=False, passwords=True)
    said = {"host": "localhost", "authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}
    answer = await site.answer(WebRequest("GET", "/", {}, said), WebCaller("me", denied=denied))
    assert answer.status in (200, 401)
    return answer.status == 200


@pytest.mark.parametrize("user", ["bob", "nobody"])
@pytest.mark.parametrize("kind", WRONG)
async def test_a_wrong_password_is_one_whatever_is_wrong_with_it(
    doors: Doors, kind: str, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = list[str]()
    assert not by_sasl(doors, user, WRONG[kind], lambda: wrong.append("sasl"))
    assert not by_mqtt(doors, user, WRONG[kind], lambda: wrong.append("mqtt"))
    assert not await by_http(doors, user, WRONG[kind], lambda: wrong.append("http"))
    assert wrong == ["sasl", "mqtt", "http"]
    assert not [record for record in caplog.records if record.exc_info]


async def test_nobody_has_a_name_that_is_too_long(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[str]()
    monkeypatch.setattr(doors, "_find", lambda user: found.append(user) or Verifier.of("x", b"salt", 4096))
    wrong = list[str]()
    name = "n" * (LONGEST + 1)
    assert not by_mqtt(doors, name, "x", lambda: wrong.append("mqtt"))
    assert not await by_http(doors, name, "x", lambda: wrong.append("http"))
    assert wrong == ["mqtt", "http"] and not found


async def test_the_right_one_lets_in(doors: Doors) -> None:
    wrong = list[str]()
    assert by_sasl(doors, "bob", "open sesame", lambda: wrong.append("sasl"))
    assert by_mqtt(doors, "bob", "open sesame", lambda: wrong.append("mqtt"))
    assert await by_http(doors, "bob", "open sesame", lambda: wrong.append("http"))
    assert not wrong
