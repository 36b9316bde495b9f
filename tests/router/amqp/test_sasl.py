"""The SASL layer (AMQP 1.0 5.3) by itself: two ends, the RFCs' vectors, and what strangers may say."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from router.amqp.format.codec import Described, Symbol, decode, ubyte
from router.amqp.format.errors import FRAMING_ERROR, UNAUTHORIZED, AmqpError
from router.amqp.sasl import scram
from router.amqp.sasl.client import Proof, SaslClient, anonymous, external, plain
from router.amqp.sasl.layer import (
    AMQP_HEADER,
    CHALLENGE,
    INIT,
    MECHANISMS,
    OUTCOME,
    RESPONSE,
    SASL_HEADER,
    sasl_frame,
)
from router.amqp.sasl.scram import SCRAM, ScramClient, ScramServer, Verifier, prepared
from router.amqp.sasl.server import ANONYMOUS, EXTERNAL, PLAIN, ExternalServer, Offer, PlainServer, SaslServer

PENCIL = Verifier.of("pencil", bytes.fromhex("5b6d99689d12358eeca04b141236fa81"), 4096)


def find(user: str) -> Verifier:
    return PENCIL if user == "user" else Verifier.decoy(user, b"key")


OFFER: Offer = {
    SCRAM: lambda: ScramServer(find),
    PLAIN: lambda: PlainServer(find),
    EXTERNAL: lambda: ExternalServer("certified"),
}

# RFC 7677, section 3.
NONCES = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def meet(client: SaslClient, server: SaslServer) -> None:
    """Both ends talk until one has nothing to say."""
    while client.out or server.out:
        to_server, client.out = client.out, b""
        assert server.receive(to_server) == b""
        to_client, server.out = server.out, b""
        assert client.receive(to_client) == b""


def test_the_server_offers_an_array_of_mechanisms() -> None:
    """AMQP allows a lone symbol, too, but there are clients (RabbitMQ's) that know only arrays."""
    server = SaslServer()
    server.receive(SASL_HEADER)
    offer = server.out[len(SASL_HEADER) :]
    assert decode(offer, 8)[0] == Described(MECHANISMS, [[Symbol("ANONYMOUS")]])
    assert int.from_bytes(offer[:4], "big") == len(offer)


@pytest.mark.parametrize(
    ("proofs", "offer", "user"),
    [
        ([], None, ""),
        ([plain("user", "pencil")], OFFER, "user"),
        ([ScramClient("user", "pencil")], OFFER, "user"),
        ([external()], OFFER, "certified"),
        ([anonymous(), plain("user", "pencil")], OFFER, "user"),
    ],
)
def test_both_ends_come_to_terms(proofs: Sequence[Proof], offer: Offer | None, user: str) -> None:
    client, server = SaslClient(proofs, server="b"), SaslServer(offer) if offer else SaslServer()
    meet(client, server)
    assert client.done and server.done
    assert (server.user, client.user) == (user, "b")
    assert server.receive(AMQP_HEADER) == AMQP_HEADER


@pytest.mark.parametrize(
    "proof",
    [
        plain("user", "pen"),
        plain("nobody", "pencil"),
        ScramClient("user", "pen"),
        ScramClient("nobody", "pencil"),
        plain("user\0", "pencil"),
    ],
)
def test_who_does_not_know_the_password_is_told_no_more_than_that_it_is_refused(proof: Proof) -> None:
    client, server = SaslClient([proof]), SaslServer(OFFER)
    with pytest.raises(AmqpError, match=r"is unknown, or the password is wrong|the client sent no valid PLAIN message"):
        meet(client, server)
    assert decode(server.out, 8)[0] == Described(OUTCOME, [1])
    with pytest.raises(AmqpError, match=f"the server refused {proof.name}: wrong user or password"):
        client.receive(server.out)
    assert not client.done and not server.done and not server.user


@pytest.mark.parametrize(
    ("proofs", "offer", "said"),
    [
        (
            [],
            [SCRAM, PLAIN],
            "does not offer ANONYMOUS, it offers ['SCRAM-SHA-256', 'PLAIN']; it wants a user and a password",
        ),
        ([], [EXTERNAL, PLAIN], "['EXTERNAL', 'PLAIN']; it wants a user and a password, or a certificate"),
        ([external()], [SCRAM], "does not offer EXTERNAL, it offers ['SCRAM-SHA-256']; it wants a user and a password"),
        ([ScramClient("user", "pencil")], [PLAIN], "does not offer SCRAM-SHA-256, it offers ['PLAIN']"),
        (
            [plain("user", "pencil")],
            [EXTERNAL, ["odd"]],
            "does not offer PLAIN, it offers ['EXTERNAL', ['odd']]; it wants a certificate",
        ),
        ([], [Symbol("GSSAPI")], "does not offer ANONYMOUS, it offers ['GSSAPI']"),
    ],
)
def test_who_shows_what_is_not_offered_is_told_what_is_wanted(
    proofs: Sequence[Proof], offer: list[object], said: str
) -> None:
    with pytest.raises(AmqpError) as refused:
        SaslClient(proofs).receive(SASL_HEADER + sasl_frame(MECHANISMS, offer))
    assert refused.value.description.endswith(said)


def test_the_words_of_scram_are_those_of_the_rfc() -> None:
    client = ScramClient("user", "pencil", NONCES[0])
    server = ScramServer(find, NONCES[1])
    assert client.initial() == CLIENT_FIRST
    assert server.step(CLIENT_FIRST) == SERVER_FIRST
    assert client.respond(SERVER_FIRST) == CLIENT_FINAL
    assert server.step(CLIENT_FINAL) is None
    assert (server.user, server.final) == ("user", SERVER_FINAL)
    client.finish(SERVER_FINAL)


@pytest.mark.parametrize("final", [None, b"", b"v=", SERVER_FINAL.replace(b"6", b"7"), b"\xff"])
def test_a_server_that_does_not_know_the_password_is_left(final: bytes | None) -> None:
    client = ScramClient("user", "pencil", NONCES[0])
    client.initial()
    client.respond(SERVER_FIRST)
    with pytest.raises(AmqpError):
        client.finish(final)


def test_a_server_that_accepts_without_a_challenge_has_proven_nothing() -> None:
    client = SaslClient([ScramClient("user", "pencil")])
    client.receive(SASL_HEADER + sasl_frame(MECHANISMS, SCRAM))
    with pytest.raises(AmqpError, match="did not prove that it knows the password"):
        client.receive(sasl_frame(OUTCOME, ubyte(0), b"v="))
    assert not client.done


@pytest.mark.parametrize(
    "challenge",
    [
        SERVER_FIRST.replace(b"4096", b"1000001"),
        SERVER_FIRST.replace(b"4096", b"4095"),
        SERVER_FIRST.replace(b"4096", b"many"),
        SERVER_FIRST.replace(b"r=rOpr", b"r=xxxx"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"e=other-error",
        b"",
    ],
)
def test_a_client_takes_no_challenge_that_is_not_an_answer_to_it(challenge: bytes) -> None:
    client = ScramClient("user", "pencil", NONCES[0])
    client.initial()
    with pytest.raises(AmqpError):
        client.respond(challenge)


@pytest.mark.parametrize(
    "messages",
    [
        [b"p=tls-unique,,n=user,r=abc"],
        [b"n,a=root,n=user,r=abc"],
        [b"n,,m=x,n=user,r=abc"],
        [b"n,,n=,r=abc"],
        [b"n,,n=user,r="],
        [b"\xff"],
        [b""],
        [CLIENT_FIRST, b""],
        [CLIENT_FIRST, b"c=biws"],
        [CLIENT_FIRST, CLIENT_FINAL.replace(b"c=biws", b"c=eSws")],  # another header than was sent
        [CLIENT_FIRST, CLIENT_FINAL.replace(b"hNlF", b"hNlE")],
        [CLIENT_FIRST, CLIENT_FINAL[:-4]],
        [CLIENT_FIRST, CLIENT_FIRST],
    ],
)
def test_what_is_no_scram_is_refused(messages: list[bytes]) -> None:
    server = ScramServer(find, NONCES[1])
    for message in messages[:-1]:
        server.step(message)
    with pytest.raises(AmqpError) as refused:
        server.step(messages[-1])
    assert refused.value.condition == UNAUTHORIZED
    assert server.final is None


def test_a_user_that_there_is_not_looks_like_one_that_there_is() -> None:
    def salt(user: bytes) -> bytes:
        challenge = ScramServer(find).step(b"n,,n=%b,r=abc" % user)
        assert challenge is not None
        return challenge.split(b",")[1]

    assert salt(b"nobody") == salt(b"nobody") != salt(b"anybody")
    assert len(salt(b"nobody")) == len(salt(b"user"))


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        (AMQP_HEADER, UNAUTHORIZED),  # without SASL, where nobody may be anonymous
        (b"HTTP/1.1", FRAMING_ERROR),
        (SASL_HEADER + sasl_frame(INIT, ANONYMOUS, b"me"), UNAUTHORIZED),
        (SASL_HEADER + sasl_frame(INIT, "PLAIN", b"\0user\0pencil"), UNAUTHORIZED),  # no symbol
        (SASL_HEADER + sasl_frame(INIT), FRAMING_ERROR),
        (SASL_HEADER + sasl_frame(INIT, PLAIN, "user pencil"), FRAMING_ERROR),
        (SASL_HEADER + sasl_frame(INIT, PLAIN, b"user pencil"), UNAUTHORIZED),
        (SASL_HEADER + sasl_frame(INIT, PLAIN, b"root\0user\0pencil"), UNAUTHORIZED),
        (SASL_HEADER + sasl_frame(INIT, EXTERNAL, b"root"), UNAUTHORIZED),
        (SASL_HEADER + sasl_frame(RESPONSE, b"before the init"), FRAMING_ERROR),
        (SASL_HEADER + sasl_frame(OUTCOME, ubyte(0)), FRAMING_ERROR),
        (SASL_HEADER + sasl_frame(CHALLENGE, b""), FRAMING_ERROR),
        (SASL_HEADER + 2 * sasl_frame(INIT, SCRAM, CLIENT_FIRST), FRAMING_ERROR),
        (SASL_HEADER + sasl_frame(INIT, SCRAM, bytes(500)), FRAMING_ERROR),
    ],
)
def test_nobody_comes_in_who_says_something_else(frames: bytes, condition: str) -> None:
    server = SaslServer(OFFER)
    with pytest.raises(AmqpError) as refused:
        server.receive(frames)
    assert refused.value.condition == condition
    assert not server.done


@pytest.mark.parametrize("begin", [lambda: PlainServer(find), lambda: ScramServer(find)])
def test_a_client_may_wait_to_be_asked(begin: Callable[[], PlainServer | ScramServer]) -> None:
    assert begin().step(None) == b""


def test_names_and_passwords_are_compared_as_they_look() -> None:
    """RFC 4013, section 3."""
    assert prepared("I\u00adX") == b"IX"
    assert prepared("\u2168") == b"IX"
    assert prepared("a\u00a0b") == b"a b"
    with pytest.raises(AmqpError):
        prepared("\u0007")
    assert "stored_key" not in repr(PENCIL)


def test_what_is_too_long_for_a_name_or_password_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks on one letter: how long it takes to bring them into their order is the square of their number."""
    looked = list[int]()

    def normalize(form: str, text: str) -> str:
        looked.append(len(text))
        return text

    monkeypatch.setattr(scram, "unicodedata", SimpleNamespace(normalize=normalize))
    marks = "a" + "\u0300\u0323" * scram.LONGEST
    assert not PENCIL.fits(marks[: scram.LONGEST + 1])
    with pytest.raises(AmqpError, match="more than 256 characters"):
        ScramClient(marks, "pencil")
    assert not looked
    assert not PENCIL.fits(marks[: scram.LONGEST])
    assert looked == [scram.LONGEST]


@pytest.mark.parametrize("more", [SASL_HEADER, sasl_frame(INIT, PLAIN, b"\0user\0pencil"), b"AMQP\x02\x01\x00\x00"])
def test_after_sasl_comes_a_header_of_amqp(more: bytes) -> None:
    """Proton would begin its own SASL or TLS, and tell what it does not know, passwords too."""
    server = SaslServer(OFFER)
    assert server.receive(SASL_HEADER + sasl_frame(INIT, PLAIN, b"\0user\0pencil") + more[:7]) == b""
    assert server.done
    with pytest.raises(AmqpError, match="does not speak AMQP") as refused:
        server.receive(more[7:])
    assert "pencil" not in str(refused.value)
