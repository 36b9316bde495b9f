"""A router that lies: its messages to other routers are damaged on their way.

A router that gets such a message drops the contact or the transport. The effects of a well-formed lie are not judged:
routers of a mesh trust each other. But a lie must end no router, and a pair of clients at two other routers must be
served in the end. The liar itself may come to any end.
"""

from random import Random

import msgpack

from linkstate.frames import PeerError
from tests.fuzz.clients import visit
from tests.fuzz.mesh import FuzzMesh
from tests.fuzz.mutation import altered, damaged
from tests.linkstate.network import Ledger, Network

LIAR = "c"
LINKS = {("a", "b"): 1, ("a", "c"): 1, ("b", "c"): 1}
MOST_ACTIONS = 200
"""The most actions that one body may cause."""


def routers(rng: Random) -> None:
    """Damage batches of the topic core, or bodies of link state and channels."""
    (_batches if rng.random() < 0.8 else _bodies)(rng)


def _batches(rng: Random) -> None:
    """Clients attach at the liar and at other routers; a and b serve a good pair."""
    share = rng.choice((0.02, 0.1, 0.5))

    def bend(router: str, payload: bytes) -> bytes:
        if router != LIAR or rng.random() > share:
            return payload
        return damaged(rng, payload) if rng.random() < 0.3 else altered_bytes(rng, payload)

    mesh = FuzzMesh("a", "b", LIAR, bend=bend, liar=LIAR)
    visit(rng, mesh)
    if LIAR in mesh.routers:
        mesh.lose(LIAR)
    mesh.check()
    mesh.end()


def altered_bytes(rng: Random, payload: bytes) -> bytes:
    try:
        packed: bytes = msgpack.packb(altered(rng, msgpack.unpackb(payload, strict_map_key=False)))
    except (TypeError, ValueError, OverflowError):
        return damaged(rng, payload)
    return packed


class _Unjudged(Ledger):
    """Keeps no account: a router that gets lies keeps no promise."""

    def made(self, here: str, there: str) -> None: ...
    def lost(self, here: str, there: str) -> None: ...
    def send(self, source: str, target: str, payload: bytes) -> None: ...
    def receive(self, here: str, source: str, payload: bytes) -> None: ...


class _LyingNetwork(Network):
    def __init__(self, rng: Random) -> None:
        super().__init__(LINKS, rng.randrange(1 << 30))
        self.ledger = _Unjudged()
        self._rng = rng
        self._share = rng.choice((0.02, 0.2))

    def _carry(self, direction: tuple[str, str], link: str, body: bytes) -> None:
        if direction[0] == LIAR and body and self._rng.random() < self._share:
            body = self._bent(body)
        super()._carry(direction, link, body)

    def _bent(self, body: bytes) -> bytes:
        """A body with one part changed. A body is a sequence of binaries, most of which are packed."""
        rng = self._rng
        if rng.random() < 0.3:
            return damaged(rng, body)
        unpacker = msgpack.Unpacker(max_buffer_size=1 << 24)
        unpacker.feed(body)
        parts = list(unpacker)
        at = rng.randrange(len(parts))
        parts[at] = altered_bytes(rng, parts[at])
        return b"".join(map(msgpack.packb, parts))

    def _deliver(self, source: str, here: str, transport: int, link: str, body: bytes) -> None:
        mesh = self.meshes[here]
        try:
            super()._deliver(source, here, transport, link, body)
        except PeerError:
            assert source == LIAR, f"{here} cannot read what {source} says"
            self.connect(here, source)
        assert len(mesh.out) <= MOST_ACTIONS, f"{len(mesh.out)} actions after one body of {len(body)} bytes"


def _bodies(rng: Random) -> None:
    network = _LyingNetwork(rng)
    network.connect_all()
    network.run(1.0)
    for _ in range(20):
        source = rng.choice(network.routers)
        targets = list(network.meshes[source].contacts)
        if targets:
            network.meshes[source].send(targets, rng.randbytes(rng.choice((10, 1000, 200_000))), network.now)
        network.run(rng.choice((0.05, 0.2, 1.5)))
