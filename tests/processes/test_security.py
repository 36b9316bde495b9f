"""Two routers that let in whom they know: by certificates and passwords, or by a secret that only they share.

who wants in -> a---b <- who wants to be a
"""

import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest
import trio

from failover.client import Publisher, Subscriber
from failover.client.errors import ClientError
from router.amqp.sasl.client import Proof, SaslClient, anonymous, external, plain
from router.amqp.sasl.credentials import NOBODY, Credentials
from router.amqp.sasl.layer import AMQP_HEADER, SASL_HEADER
from router.amqp.sasl.scram import ScramClient, Verifier
from router.amqp.tls import TlsError, TlsStream
from router.mesh.quantities import Address
from router.mesh.topology import load
from router.neighbours import MESH, VERSION, WIRE
from router.security.certs import Authority, issue_all
from router.security.users import UserFile, write_users
from tests.hangs import HANGS_S
from tests.interop.foreign import HERE as INTEROP
from tests.interop.foreign import NODE, prepare
from tests.processes.clients import Client, Clients
from tests.processes.mesh import TOPOLOGIES, RunningMesh, eventually, running
from tests.processes.test_bad_input import provoke
from tests.router.amqp.frames import opening

SECRET, PASSWORD = "a secret of routers, 29 letters", "open sesame"
CLIENTS_PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
ROUTERS = frozenset("ab")
OPEN = {MESH: "pair", WIRE: VERSION}


@attrs.frozen
class Secured:
    """A mesh and the files that let one into it."""

    mesh: RunningMesh
    folder: Path

    def certified(self, name: str, ca: str = "ca") -> Credentials:
        folder = self.folder / "certs"
        return Credentials("", "", folder / f"{ca}.pem", folder / f"{name}.pem", folder / f"{name}.key", names=ROUTERS)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """With certificates and users."""
    folder = tmp_path_factory.mktemp("certified")
    issue_all(load(TOPOLOGIES / "pair.yaml"), folder / "certs", ["alice"])
    authority = Authority(folder / "certs", "")
    authority.issue("expired", days=-1)
    foreign = Authority(folder / "foreign", "another CA")
    for path in foreign.issue("a"):
        path.rename(folder / "certs" / f"foreign{path.suffix}")
    write_users(folder / "users", UserFile({"bob": Verifier.of(PASSWORD)}))
    files = {"certificate": "certs/{router}.pem", "key": "certs/{router}.key", "ca": "certs/ca.pem", "users": "users"}
    with running("pair", folder, security=files, host="127.0.0.1") as mesh:  # one that the certificates are of
        yield Secured(mesh, folder)


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Without certificates."""
    folder = tmp_path_factory.mktemp("secret")
    (folder / "secret").write_text(f"{SECRET}\n")
    write_users(folder / "users", UserFile({"bob": Verifier.of(PASSWORD)}))
    with running("pair", folder, security={"secret": "secret", "users": "users"}, idle="2s") as mesh:
        yield Secured(mesh, folder)


async def knock(
    clients: Clients, address: Address, shown: Credentials | None, proofs: Sequence[Proof], name: str = "somebody"
) -> tuple[Client | None, str]:
    """Who wants in, None if already TLS lets it out; and what the log calls it."""
    below = await trio.open_tcp_stream(address.host, address.port)
    who = f"a peer at 127.0.0.1:{below.socket.getsockname()[1]}"
    try:
        stream = below if shown is None else await TlsStream.over(below, shown.context())
    except TlsError:
        return None, who
    client = await clients.over(stream, name, properties=OPEN, sasl=SaslClient(proofs) if proofs else None)
    return client, who


async def is_refused(mesh: RunningMesh, clients: Clients, client: Client | None, who: str, why: str) -> None:
    """It is told nothing, and the log tells who it was and why."""
    if client is not None:
        await clients.until(lambda: client.connection.closed)
        assert not client.connection.remote_container and not client.connection.remote_properties

    async def logged() -> bool:
        return any(who in line and why in line for line in mesh.log("b").splitlines())

    await eventually(logged)


NOT_KNOWN = "the user 'bob' is unknown, or the password is wrong"


@pytest.mark.parametrize(
    ("certificate", "proofs", "why"),
    [
        (None, [plain("bob", "sesame")], NOT_KNOWN),
        (None, [ScramClient("bob", "sesame")], NOT_KNOWN),
        (None, [plain("eve", PASSWORD)], "user 'eve' is unknown"),
        (None, [ScramClient("$mesh", "")], "user '$mesh' is unknown"),
        (None, [anonymous()], "the server does not offer ANONYMOUS"),
        ("expired", [external()], "the certificate was not accepted: certificate has expired"),
        ("foreign", [external()], "the certificate was not accepted: unable to get local issuer certificate"),
    ],
)
async def test_a_client_that_does_not_prove_who_it_is_stays_outside(
    certified: Secured, clients: Clients, certificate: str | None, proofs: list[Proof], why: str
) -> None:
    shown = certified.certified("alice") if certificate is None else certified.certified(certificate)
    if certificate is None:
        shown = attrs.evolve(shown, certificate=None, key=None)
    client, who = await knock(clients, certified.mesh.address("b"), shown, proofs)
    if "does not offer" in why:
        assert client is not None and client.closed is not None and why in client.closed.description
    else:
        await is_refused(certified.mesh, clients, client, who, why)


@pytest.mark.parametrize(
    ("certificate", "proofs", "name", "why"),
    [
        ("alice", [external()], "a", "the router authenticated as 'alice', but its open names it 'a'"),
        ("b", [external()], "a", "the router authenticated as 'b', but its open names it 'a'"),
        ("alice", [external()], "alice", "router 'alice' is not a neighbour of 'b'"),
        ("expired", [external()], "a", "the certificate was not accepted: certificate has expired"),
        ("foreign", [external()], "a", "the certificate was not accepted: unable to get local issuer certificate"),
        (None, [external()], "a", "TLS: peer did not return a certificate"),
    ],
)
async def test_who_has_no_certificate_of_a_router_is_none(
    certified: Secured, clients: Clients, certificate: str | None, proofs: list[Proof], name: str, why: str
) -> None:
    shown = certified.certified(certificate or "alice")
    if certificate is None:
        shown = attrs.evolve(shown, certificate=None, key=None)
    client, who = await knock(clients, certified.mesh.inter("b"), shown, proofs, name)
    await is_refused(certified.mesh, clients, client, who, why)
    assert "link to router a is down" not in certified.mesh.log("b")


@pytest.mark.parametrize(
    ("proofs", "name", "why"),
    [
        ([ScramClient("a", "a secret of another mesh")], "a", "the user 'a' is unknown, or the password is wrong"),
        ([ScramClient("bob", PASSWORD)], "bob", NOT_KNOWN),
        ([ScramClient("b", SECRET)], "a", "the router authenticated as 'b', but its open names it 'a'"),
        ([ScramClient("c", SECRET)], "c", "router 'c' is not a neighbour of 'b'"),
    ],
)
async def test_who_does_not_know_the_secret_is_no_router(
    secret: Secured, clients: Clients, proofs: list[Proof], name: str, why: str
) -> None:
    client, who = await knock(clients, secret.mesh.inter("b"), None, proofs, name)
    await is_refused(secret.mesh, clients, client, who, why)
    assert "link to router a is down" not in secret.mesh.log("b")


@pytest.mark.parametrize(
    "said",
    [opening(), AMQP_HEADER, SASL_HEADER, b"GET / HTTP/1.1\r\n\r\n", bytes(100)],
    ids=["AMQP", "its header", "SASL", "HTTP", "zeros"],
)
@pytest.mark.parametrize("listener", ["amqp", "inter"])
@pytest.mark.parametrize("kind", ["certified", "secret"])
async def test_who_says_what_comes_to_his_mind_learns_nothing(
    request: pytest.FixtureRequest, kind: str, listener: str, said: bytes
) -> None:
    mesh: RunningMesh = request.getfixturevalue(kind).mesh
    heard = await provoke(mesh.address("b") if listener == "amqp" else mesh.inter("b"), said)
    assert not any(word in heard for word in (b"pair", b"\xa1\x01b", b"router"))
    assert len(heard) < 100


@pytest.mark.parametrize("user", ["", "bob", "alice"])
async def test_our_own_clients_come_in_by_what_they_show(certified: Secured, user: str) -> None:
    """Who runs the mesh shows the certificate of a router, as `up` does; a user a password or a certificate."""
    shown = {
        "": certified.certified("a"),
        "bob": attrs.evolve(certified.certified("a"), user="bob", password=PASSWORD, certificate=None, key=None),
        "alice": attrs.evolve(certified.certified("alice"), names=frozenset()),  # a router is known by its host, then
    }[user]
    url = f"amqps://{certified.mesh.address('a')}"
    subscriber = Subscriber([url], "topic/x", container=f"s {user}", link="l", credentials=shown)
    publisher = Publisher([url], "topic/x", container=f"p {user}", link="l", credentials=shown)
    with trio.fail_after(HANGS_S):
        async with subscriber, publisher:
            handle = await publisher.send(b"hello")
            delivery = await anext(aiter(subscriber))
            await delivery.accept()
            await handle.outcome()


async def test_a_link_belongs_to_its_user(certified: Secured) -> None:
    """Another user of the same names has a link of his own."""
    alice = certified.certified("alice")
    bob = attrs.evolve(alice, user="bob", password=PASSWORD, certificate=None, key=None)
    url = f"amqps://{certified.mesh.address('b')}"
    with trio.fail_after(HANGS_S):
        async with (
            Subscriber([url], "topic/x", container="s", link="l", credentials=alice) as hers,
            Subscriber([url], "topic/x", container="s", link="l", credentials=bob) as his,
            Publisher([url], "topic/x", container="p", link="l", credentials=bob) as publisher,
        ):
            status = await certified.mesh.status("b")
            handle = await publisher.send(b"for both")
            for subscriber in (hers, his):
                await (await anext(aiter(subscriber))).accept()
            await handle.outcome()
    assert sorted(link["user"] for link in status["subscribers"]) == ["alice", "bob"]


async def test_our_own_clients_believe_no_router_that_they_do_not_know(certified: Secured) -> None:
    url = f"amqps://{certified.mesh.address('a')}"
    foreign = attrs.evolve(NOBODY, ca=certified.folder / "foreign" / "ca.pem")
    misnamed = attrs.evolve(certified.certified("alice"), names=frozenset({"c"}))
    for shown, why in ((foreign, "self-signed certificate"), (misnamed, "names 'a', expected c")):
        with pytest.raises((ClientError, ConnectionError), match=why):
            async with Subscriber([url], "topic/x", container="s", link="l", credentials=shown):
                pass


async def test_certificates_are_read_anew_on_sighup(certified: Secured, clients: Clients) -> None:
    mesh, shown = certified.mesh, certified.certified("alice")

    async def serial() -> str:
        below = await trio.open_tcp_stream(mesh.address("b").host, mesh.address("b").port)
        async with await TlsStream.over(below, shown.context()) as stream:
            return str((stream.pipe.tls.getpeercert() or {})["serialNumber"])

    async def is_renewed() -> bool:
        return await serial() != before

    before = await serial()
    certificate, _ = Authority(certified.folder / "certs", "").issue("b")
    mesh.signal("b", signal.SIGHUP)
    await eventually(is_renewed)
    certificate.write_text("damaged")
    mesh.signal("b", signal.SIGHUP)

    async def is_told() -> bool:
        return f"keeping the old certificates, secret, users and rules, because of: {certificate}" in mesh.log("b")

    await eventually(is_told)
    await serial()


async def test_a_secret_is_read_anew_on_sighup(secret: Secured, clients: Clients) -> None:
    """Which ends no router, whatever it has."""

    async def is_known() -> bool:
        client, who = await knock(clients, secret.mesh.inter("b"), None, [ScramClient("c", fresh)], "c")
        assert client is not None
        await clients.until(lambda: client.connection.closed)
        return any(who in line and "'c' is not a neighbour" in line for line in secret.mesh.log("b").splitlines())

    for fresh in ("another secret of routers", SECRET):
        (secret.folder / "secret").write_text(fresh)
        for name in "ab":
            secret.mesh.signal(name, signal.SIGHUP)
        await eventually(is_known)
    assert "link to router a is down" not in secret.mesh.log("b")


async def test_no_secret_is_in_logs_status_or_run_directories(certified: Secured, secret: Secured) -> None:
    for secured in (certified, secret):
        words = [PASSWORD, SECRET, "PRIVATE KEY", *(secured.folder / "users").read_text().split("$")[1:]]
        words += [path.read_text().splitlines()[1] for path in secured.folder.glob("certs/*.key")]
        files = [path for path in secured.mesh.directory.path.rglob("*") if path.is_file()]
        assert len(files) > 5
        said = b"".join(path.read_bytes() for path in files) + str(await secured.mesh.status("a")).encode()
        assert [word for word in words if word.encode() in said] == []


@pytest.mark.parametrize(
    ("login", "certificate", "expected"),
    [
        ("bob:open%20sesame@", None, ["received hello", "accepted"]),
        ("bob:wrong@", None, ["refused"]),
        ("", "alice", ["received hello", "accepted"]),
    ],
)
@pytest.mark.parametrize("make", ["proton", "rhea"])
async def test_an_unmodified_client_of_another_make(
    certified: Secured, make: str, login: str, certificate: str | None, expected: list[str]
) -> None:
    prepare(make)
    program: dict[str, tuple[str, Path]] = {
        "proton": (sys.executable, INTEROP / "proton_login.py"),
        "rhea": (str(NODE), INTEROP / "rhea_login.js"),
    }
    folder = certified.folder / "certs"
    own = [] if certificate is None else [folder / f"{certificate}.pem", folder / f"{certificate}.key"]
    url = f"amqps://{login}{certified.mesh.address('a')}"
    command: list[str | Path] = [*program[make], url, folder / "ca.pem", *own]
    with trio.fail_after(HANGS_S):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    said = done.stdout.decode().splitlines()
    assert [line.removesuffix(" amqp:unauthorized-access") for line in said] == expected, done.stderr


async def test_the_proton_client_of_the_clients_page_over_tls(certified: Secured) -> None:
    [program] = re.findall(r"```python\n(from proton .*?)```", CLIENTS_PAGE.read_text(), re.DOTALL)
    for theirs, ours in (
        ("a.example.org:5671", f"localhost:{certified.mesh.address('a').port}"),
        ("ca.pem", str(certified.folder / "certs" / "ca.pem")),
        ("alice", "bob"),
    ):
        assert theirs in program
        program = program.replace(theirs, ours)
    with trio.fail_after(HANGS_S):
        done = await trio.run_process([sys.executable, "-c", program], capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
