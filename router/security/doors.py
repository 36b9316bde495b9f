"""The authentication of clients and neighbours at one router, and of the router itself at its neighbours.

Each connection passes a door: its stream, with TLS if the mesh has certificates, and an end of SASL. The configuration
says what a peer has to show: a neighbour shows the certificate of its name, the mesh's secret, or both; a client shows
a user's password or a certificate (docs/security.md). Without configuration, the stream has no TLS, and every peer is
accepted."""

import logging
import signal
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

import trio

from router.amqp.format.codec import Symbol
from router.amqp.format.errors import TOO_MANY
from router.amqp.pipe import HandshakeError, LayeredStream
from router.amqp.sasl.client import SaslClient, external
from router.amqp.sasl.scram import LONGEST, SCRAM, ScramClient, ScramServer, Verifier
from router.amqp.sasl.server import (
    ANONYMOUS,
    EXTERNAL,
    PLAIN,
    AnonymousServer,
    Exchange,
    ExternalServer,
    PlainServer,
    SaslServer,
)
from router.amqp.tls import LeftError, TlsError, TlsStream
from router.events.kind import EventKind, event
from router.mesh.config import IN_CLEAR, Topology
from router.mesh.errors import FileError
from router.mesh.signals import taken
from router.security.attempts import Attempts, Checks, Guesses
from router.security.files import Files
from router.security.operator import OPERATOR
from router.security.rules import Rule, Rules, read_rules
from router.security.users import Users

log = logging.getLogger("oncemesh.security")


class LateError(HandshakeError):
    """The peer has taken too long for the handshake."""


@contextmanager
def told(peer: str, late: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Log a failure of the peer's handshake. `late` is called if the peer took too long."""
    try:
        yield
    except LeftError:
        pass
    except HandshakeError as error:
        log.warning(
            "connection of %s ended: %s", peer, error, extra=event(EventKind.REFUSED, origin=peer, why=str(error))
        )
        if isinstance(error, LateError):
            late()


WayIn = tuple[trio.abc.Stream, SaslServer]
WayOut = tuple[trio.abc.Stream, SaslClient]
Secured = tuple[trio.SocketStream | LayeredStream, str, Guesses]
LetIn = Callable[[trio.SocketStream], Awaitable[Secured]]
"""Lets a client's stream in at a listener. Returns the stream, the user of the certificate shown ("" if none), and the
connection's password attempts. Raises HandshakeError."""


class Doors:
    """The doors of one router. The constructor raises FileError if files are missing or wrong."""

    def __init__(self, topology: Topology, name: str) -> None:
        security = topology.security
        self._name = name
        self._topology = topology
        self._patience = topology.limits.opening
        self.files = Files(topology, name)
        self._users_file, self._rules_file = (
            None if file is None else topology.file(file, name) for file in (security.users, security.rules)
        )
        self._plain = security.tls or security.plain == IN_CLEAR
        self._tls = security.tls
        self._routers: Collection[str] = topology.routers
        self._attempts = Attempts(trio.current_time)
        self.checks = Checks()
        self._load()

    def _load(self) -> None:
        """Read the files again, for all peers that connect from now on. Raises FileError, and then keeps the old
        contents."""
        users = Users(self._users_file) if self._users_file is not None else None
        rules = read_rules(self._rules_file) if self._rules_file is not None else {}
        secret = self.files.secret()
        self._contexts = self.files.contexts() if self._tls else None
        self._secret, self._users = secret, users
        self._rules = Rules(rules, self._topology.limits, self._routers)
        self._verifier = Verifier.of(secret) if secret is not None else None
        if users is not None or secret is None:
            self._decoys = b""
        # The key for decoys is derived from the secret: each guess at the secret costs the work of all iterations.
        else:
            self._decoys = Verifier.of(secret, b"decoys").stored_key

    def rule_of(self, user: str) -> Rule:
        """The rule of the user, as the files have it at present."""
        return self._rules.rule_of(user)

    def follow(self, routers: Collection[str]) -> None:
        """Follow a change of the plan. `routers` are the routers of the mesh from now on. As users they may do
        everything."""
        self._routers = self._rules.routers = routers

    async def reload_on_hangup(self) -> None:
        """Read the files again at each SIGHUP. Certificates expire and secrets leak, so new ones are installed while
        the router runs."""
        with taken(signal.SIGHUP) as signals:
            async for _ in signals:
                try:
                    self._load()
                    log.info("certificates, secret, users and rules were read again")
                except FileError as error:
                    log.error("keeping the old certificates, secret, users and rules, because of: %s", error)

    async def _secured(self, stream: trio.SocketStream, context: ssl.SSLContext) -> TlsStream:
        with trio.move_on_after(self._patience):
            return await TlsStream.over(stream, context)
        raise LateError("the peer began no TLS in time")

    # The methods from here on are about incoming connections.

    def sasl_of(self, certified: str, guesses: Guesses, *, anybody: bool) -> SaslServer:
        """The end of SASL for a client that was let in. `anybody`: its listener admits clients without
        authentication."""
        return SaslServer(self._offer(certified, guesses, anybody=anybody), guesses.was_wrong)

    def _offer(self, certified: str, guesses: Guesses, *, anybody: bool) -> dict[Symbol, Callable[[], Exchange]]:
        offer: dict[Symbol, Callable[[], Exchange]] = {}
        if certified:
            offer[EXTERNAL] = lambda: ExternalServer(certified)
        if self._users is not None or self._verifier is not None:
            offer[SCRAM] = lambda: ScramServer(self._find, may=guesses.may)
        if self._users is not None and self._plain:
            offer[PLAIN] = lambda: PlainServer(self._find, may=guesses.may_check)
        if anybody:
            offer[ANONYMOUS] = AnonymousServer
        return offer

    def _find(self, user: str) -> Verifier:
        found = self._users.find(user) if self._users is not None else None
        return (self._verifier if user == OPERATOR else found) or self._decoy(user)

    def _decoy(self, user: str) -> Verifier:
        return Verifier.decoy(user, self._users.decoys if self._users is not None else self._decoys)

    async def neighbour(self, stream: trio.SocketStream) -> WayIn:
        """Accept the stream of a neighbour, with TLS if configured. Raises TlsError."""
        if self._contexts is None:
            return stream, self._of_neighbour("")
        secured = await self._secured(stream, self._contexts.for_neighbours)
        return secured, self._of_neighbour(secured.peer)

    def _of_neighbour(self, certified: str) -> SaslServer:
        verifier = self._verifier
        if verifier is None:
            return SaslServer({EXTERNAL: lambda: ExternalServer(certified)}) if self._tls else SaslServer()

        def find(name: str) -> Verifier:
            return verifier if not self._tls or name == certified else self._decoy(name)

        return SaslServer({SCRAM: lambda: ScramServer(find)})

    async def let_in(self, stream: trio.SocketStream) -> Secured:
        """Let a client's stream in, with TLS if configured. After too many wrong passwords from its host it waits
        first. Raises TlsError.
        """
        host = _host(stream)
        wait_s = self._attempts.take_turn(host)
        if wait_s is None:
            raise TlsError(TOO_MANY)
        await trio.sleep(wait_s)
        guesses = Guesses(self._attempts, host, self.checks, has_turn=wait_s > 0)
        if self._contexts is None:
            return stream, "", guesses
        secured = await self._secured(stream, self._contexts.for_clients)
        return secured, secured.peer, guesses

    def proves(self, user: str, password: str) -> bool:
        """Whether this is the user's password."""
        return len(user) <= LONGEST and self._find(user).fits(password)

    def sees_all(self, user: str) -> bool:
        """Whether the user may see the links of all users."""
        return self.rule_of(user).sees_all

    # The methods from here on are about outgoing connections.

    async def to_neighbour(self, stream: trio.SocketStream, name: str) -> WayOut:
        """Prepare the stream of a connection that this router has dialled to a neighbour. The certificate of the
        neighbour has to name the neighbour. Raises TlsError."""
        if self._contexts is None:
            return stream, self._as_ourselves(name)
        secured = await self._secured(stream, self._contexts.as_neighbour)
        if secured.peer != name:
            raise TlsError(f"the certificate names {secured.peer!r}, expected router {name!r}")
        return secured, self._as_ourselves(name)

    def _as_ourselves(self, neighbour: str) -> SaslClient:
        if self._secret is not None:
            return SaslClient([ScramClient(self._name, self._secret)], neighbour)
        return SaslClient([external()], neighbour) if self._tls else SaslClient()


def _host(stream: trio.SocketStream) -> str:
    """The peer's address; empty if the peer has gone."""
    try:
        return str(stream.socket.getpeername()[0])
    except OSError:
        return ""


def check(topology: Topology, routers: Iterable[str]) -> None:
    """Check that these routers find the files that they need, and accept each other. Raises FileError."""
    files = {name: Doors(topology, name).files for name in routers}
    for link in topology.links:
        if link.a in files and link.b in files:
            files[link.a].check_neighbour(files[link.b])
