"""Passwords that are wrong, wherever they are said in words: all the same to who says them, and to who counts them."""

from base64 import b64encode
from pathlib import Path

import pytest

from router.amqp.format.codec import ubyte
from router.amqp.format.errors import AmqpError, TurnError
from router.amqp.sasl.layer import DENIED, INIT, OUTCOME, SASL_HEADER, sasl_frame
from router.amqp.sasl.scram import LONGEST, ScramClient, ScramServer, Verifier
from router.amqp.sasl.server import PLAIN, SaslServer
from router.http.exchange import WebAnswer, WebCaller, WebRequest, text_answer
from router.http.site import Page, Site
from router.mesh.topology import load
from router.mqtt.format.fields import FieldReader
from router.mqtt.format.packets import ConnectPacket, read_packet
from router.mqtt.format.values import MqttError, Reason
from router.mqtt.listener import Door
from router.security.attempts import EVERY_S, FREE, Attempts, Checks, Guesses
from router.security.doors import Doors
from router.security.users import UserFile, write_users
from tests.router.mqtt import by_hand

TOPOLOGY = "{mesh: m, routers: {a: {amqp: 127.0.0.1:0}}, security: {users: users, secret: secret, plain: in-clear}}"
HOST = "203.0.113.7"
WAYS = ["sasl", "mqtt", "http"]
RIGHT = "open sesame"
WRONG = {"another": "wrong", "a control character": "x\x01y", "too long": "x" * (LONGEST + 1)}


@pytest.fixture
def doors(tmp_path: Path) -> Doors:
    (tmp_path / "mesh.yaml").write_text(TOPOLOGY)
    (tmp_path / "secret").write_text("the secret of this mesh")
    write_users(tmp_path / "users", UserFile({"bob": Verifier.of(RIGHT, b"salt", 4096)}))
    return Doors(load(tmp_path / "mesh.yaml"), "a")


@pytest.fixture
def attempts() -> Attempts:
    """At one instant."""
    return Attempts(lambda: 1000.0)


def by_sasl(doors: Doors, user: str, password: str, guesses: Guesses) -> bool:
    server = SaslServer(doors._offer("", guesses, anybody=False), guesses.was_wrong)
    try:
        server.receive(SASL_HEADER + sasl_frame(INIT, PLAIN, f"\0{user}\0{password}".encode()))
    except TurnError:
        assert sasl_frame(OUTCOME, ubyte(DENIED)) not in server.out
        raise
    except AmqpError as error:
        assert "is unknown, or the password is wrong" in str(error)
        assert server.out.endswith(sasl_frame(OUTCOME, ubyte(DENIED)))
    return server.done


def by_mqtt(doors: Doors, user: str, password: str, guesses: Guesses) -> bool:
    said = by_hand.connect("c", user=user, password=password.encode())
    reader = FieldReader(said[1:])
    reader.number()
    packet = read_packet(said[0], reader.rest(), 5)
    assert isinstance(packet, ConnectPacket)
    try:
        return Door("", guesses, doors, passwords=True, anybody=False).user_of(packet) == user
    except MqttError as error:
        if error.reason is Reason.BUSY:
            raise TurnError from None
        assert error.reason is Reason.BAD_PASSWORD
        return False


async def page(request: WebRequest, caller: WebCaller) -> WebAnswer:
    return text_answer(200, "the page")


async def by_http(doors: Doors, user: str, password: str, guesses: Guesses) -> bool:
    site = Site("127.0.0.1", doors, {"/": Page(page)}, lambda user: False, anybody=False, passwords=True)
    said = {"host": "localhost", "authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}
    caller = WebCaller("me", may_try=guesses.may, denied=guesses.was_wrong)
    answer = await site.answer(WebRequest("GET", "/", {}, said), caller)
    if answer.status == 429:
        assert ("Connection", "close") in answer.headers
        raise TurnError
    assert answer.status in (200, 401)
    return answer.status == 200


async def says(way: str, doors: Doors, user: str, password: str, guesses: Guesses) -> bool:
    """Whether it is let in. Raises TurnError if it was not looked at."""
    match way:
        case "sasl":
            return by_sasl(doors, user, password, guesses)
        case "mqtt":
            return by_mqtt(doors, user, password, guesses)
    return await by_http(doors, user, password, guesses)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("user", ["bob", "nobody"])
@pytest.mark.parametrize("kind", WRONG)
async def test_a_wrong_password_is_one_whatever_is_wrong_with_it(
    doors: Doors, attempts: Attempts, kind: str, user: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(FREE):
        assert attempts.take_turn(HOST) == 0
        assert not await says(way, doors, user, WRONG[kind], Guesses(attempts, HOST, Checks()))
    assert attempts.take_turn(HOST) == EVERY_S
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("way", ["mqtt", "http"])
async def test_nobody_has_a_name_that_is_too_long(
    doors: Doors, attempts: Attempts, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "_find", lambda user: pytest.fail("it is looked for"))
    assert not await says(way, doors, "n" * (LONGEST + 1), "x", Guesses(attempts, HOST, Checks()))


@pytest.mark.parametrize("way", WAYS)
async def test_the_right_one_lets_in(doors: Doors, attempts: Attempts, way: str) -> None:
    for _ in range(2 * FREE):
        assert await says(way, doors, "bob", RIGHT, Guesses(attempts, HOST, Checks()))
    assert attempts.take_turn(HOST) == 0


@pytest.mark.parametrize("way", WAYS)
async def test_whoever_opens_many_connections_first_has_no_guess_on_each(
    doors: Doors, attempts: Attempts, way: str
) -> None:
    early = [Guesses(attempts, HOST, Checks()) for _ in range(3 * FREE)]
    waited = Guesses(attempts, HOST, Checks(), has_turn=True)
    for guesses in early[:FREE]:
        assert not await says(way, doors, "bob", "wrong", guesses)
    assert not await says(way, doors, "bob", "wrong", early[FREE]), "a turn that nobody waits for"
    for guesses in early[FREE + 1 :]:
        with pytest.raises(TurnError):
            await says(way, doors, "bob", RIGHT, guesses)
    assert await says(way, doors, "bob", RIGHT, waited)


def test_a_proof_by_scram_is_looked_at_in_its_turn() -> None:
    """And not as the exchange begins: many may have begun."""
    verifier, client = Verifier.of(RIGHT, b"salt", 4096), ScramClient("bob", RIGHT)
    server = ScramServer(lambda user: verifier, may=lambda: False)
    challenge = server.step(client.initial())
    assert challenge is not None
    with pytest.raises(TurnError):
        server.step(client.respond(challenge))
