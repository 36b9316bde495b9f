"""A router process: one trio run that owns the cores, the sockets and the delivery log (architecture: the process).

The nursery's shape is the ownership: listeners own their connections, each dialler the connection to its neighbour. An
error of a peer ends its connection; any other exception ends the router loudly, and the rest of the mesh goes on.
"""

import contextlib
import logging
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from router.admission import Admission, Visitor, descriptors
from router.amqp import tcp
from router.amqp.connection import Connection
from router.amqp.format.values import Bounds
from router.amqp.outbound import Outbound
from router.amqp.sasl.layer import SaslLayer
from router.amqp.transport import at_once, read_first, serve
from router.edge.clients import ClientEdge
from router.edge.guard import Guard
from router.edge.report import Reporter
from router.edge.status_node import STATUS_ADDRESS, StatusNode
from router.edge.topics import Topics
from router.garbage import tame
from router.journal import FLUSH_S, JournalFile, has_segments
from router.log_limit import limit_logs
from router.management.entity import ManagedRouter
from router.management.node import management_of
from router.mesh.config import GO_ON, LogSettings, Timing, Topology
from router.mesh.quantities import Address, format_duration
from router.mesh.stopping import DRAIN, DRAIN_S, STOP
from router.neighbours import Neighbours, keep_dialling
from router.retention import Retention
from router.security.doors import Doors, told
from router.shell import Shell
from router.store import StateStore
from router.turns import ClientTurns
from router.watchdog import watched
from topic.journal import Block
from topic.node import Node, boot
from topic.properties import DEAD
from topic.restatement import restate
from topic.settings import Settings

log = logging.getLogger("oncemesh")

INTER_FRAME = 256 * 1024
INTER_MESSAGE = 16 << 20
BESIDES = 64 << 20
"""Bytes of the largest payload between routers beside those of one message: there are sections, too."""
GOODBYE_S = 1.0
"""How long a stopping router waits for its peers to take its closes."""
LOOK_S = 0.01


class Process:
    """One router of a topology, with the state that its earlier lives left."""

    def __init__(self, topology: Topology, name: str, directory: Path, store: StateStore) -> None:
        self.topology = topology
        self.name = name
        self._store = store
        self._doors = Doors(topology, name)
        timing, limits = topology.timing, topology.limits
        incarnation = store.begin(time.time_ns() // 1_000_000)
        block = Block(name, "router", incarnation, host=socket.gethostname())
        waits = timing.join, timing.boot_wait, timing.terminus, timing.forget
        settings = Settings(limits.window, limits.window_bytes, limits.max_message, limits.redeliveries, *waits)
        costs = topology.costs_of(name)
        shell = Shell(self._pumped)
        mesh, topic = boot(
            name, incarnation, topology.routers, costs, block, settings, store, shell,
            hello=timing.hello, dead=timing.dead, max_payload=limits.max_message + BESIDES,
        )  # fmt: skip
        self.node = Node(mesh, topic, store, shell)
        self._guard = Guard(lambda user: self._doors.rules.of(user), limits)
        topics = Topics(self.node, topology.addresses, limits.max_message, timing.terminus, self._guard)
        self.clients = shell.clients = ClientEdge(self.node, topics, self._guard)
        self._journal = JournalFile(
            directory / "log", incarnation, block, goes_on=topology.log.full == GO_ON, kept=_kept(topology.log)
        )
        self._journal.restate = partial(restate, topic)
        connections, exceeded = self.clients.connections, self._guard.exceeded
        reporter = Reporter(self.node, mesh, topology.mesh, connections, self._journal, exceeded)
        self._status = StatusNode(reporter, self._guard.view)
        closed = topology.security.closes_mesh
        self.neighbours = shell.neighbours = Neighbours(self.node, mesh, topology.mesh, costs, closed=closed)
        for_neighbours, for_clients = descriptors(len(costs))
        self._from_neighbours = Admission(for_neighbours, _neighbour_idle(timing))
        self._turns = ClientTurns()
        self._outbound = Outbound()
        self._from_clients = Admission(
            for_clients, limits.opening, self._turns.turn, limits.connections, self._guard.exceed
        )
        managed = ManagedRouter(topology, self.node, mesh, self.clients, self.neighbours, trio.current_time())
        self._management = management_of(managed, self._turns.turn)
        self.clients.nodes = {STATUS_ADDRESS: self._status, **self._management.table}
        self._timer = trio.CancelScope()
        self._admission = trio.CancelScope()

    async def run(self, amqp: socket.socket, inter: socket.socket) -> None:
        """Serve until told to stop."""
        trio.lowlevel.add_instrument(self._turns)
        with watched(self.topology.timing.dead):
            await self._run(amqp, inter)

    async def _run(self, amqp: socket.socket, inter: socket.socket) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._timers)
            nursery.start_soon(self._write_journal)
            nursery.start_soon(self._tidy_disk)
            nursery.start_soon(self._status.run)
            nursery.start_soon(self._management.run)
            nursery.start_soon(self._admit_clients, amqp, nursery)
            nursery.start_soon(self._from_neighbours.serve, inter, self._accept_neighbour, nursery)
            nursery.start_soon(limit_logs)
            nursery.start_soon(self._doors.reload_on_hangup)
            for neighbour, address in self.topology.dialled_by(self.name).items():
                assert address is not None, "the command line checks that neighbours can be found"
                patience = _neighbour_idle(self.topology.timing)
                nursery.start_soon(keep_dialling, neighbour, address, patience, self._visit_neighbour)
            log.info("router %s of mesh %s serves %s", self.name, self.topology.mesh, Address(*amqp.getsockname()[:2]))
            if awaited := self.node.topic.boot.waiting_for:
                longest = format_duration(self.topology.timing.boot_wait)
                log.info("it waits for %s before it answers publishers, for %s at most", " and ".join(awaited), longest)
            await self._until_told()
            await self._goodbye()
            nursery.cancel_scope.cancel()
        self.node.now()
        self.node.topic.stop()
        self._journal.close()

    # the end

    async def _until_told(self) -> None:
        """To stop at once, or to drain and all clients have moved away."""
        with trio.open_signal_receiver(STOP, signal.SIGINT, DRAIN) as signals:
            received: AsyncIterator[int] = signals
            if await anext(received) == DRAIN:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._drain, nursery.cancel_scope)
                    while await anext(received) == DRAIN:
                        log.info("draining already")
                    nursery.cancel_scope.cancel()

    async def _drain(self, drained: trio.CancelScope) -> None:
        """Send all clients away and wait until other routers have them; we stay for what these have to ask of us."""
        log.info("draining")
        self._admission.cancel()
        self._send_clients_away()
        with trio.move_on_after(DRAIN_S) as patience:
            while self._is_needed():
                await trio.sleep(LOOK_S)
        if patience.cancelled_caught:
            log.warning("not all clients were attached elsewhere within %s", format_duration(DRAIN_S))
        drained.cancel()

    def _is_needed(self) -> bool:
        """Clients that no other router has taken over, or deliveries that another may ask about."""
        topic = self.node.topic
        ours = (entry for entry in topic.directory.entries() if entry.live and topic.directory.is_mine(entry))
        return bool(topic.records.by_key) or any(ours)

    def _send_clients_away(self) -> None:
        self.clients.close("amqp:connection:forced", "the router stops")

    async def _goodbye(self) -> None:
        """Clients are told to go elsewhere; their links end without closing detaches."""
        log.info("stopping")
        self._admission.cancel()
        self._send_clients_away()
        self.neighbours.close()
        with trio.move_on_after(GOODBYE_S):
            while self.clients.connections:
                await trio.sleep(LOOK_S)

    # time

    async def _timers(self) -> None:
        """Call the cores at their deadline, which every pump may move."""
        while True:
            with trio.CancelScope(deadline=self.node.deadline()) as self._timer:
                await trio.sleep_forever()
            await read_first(self._timer.deadline)
            with self._outbound:
                self.node.handle_timer()
                self.node.pump()

    def _pumped(self) -> None:
        self._journal.save()
        deadline = self.node.deadline()
        if deadline != self._timer.deadline:
            self._timer.deadline = deadline

    async def _write_journal(self) -> None:
        while True:
            self._journal.flush()
            await _next(FLUSH_S)

    async def _tidy_disk(self) -> None:
        """What waits for the disk, which may be slow: beside the loop."""
        beside = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
        while True:
            await _next(FLUSH_S)
            if self._store.is_to_be_merged:
                await beside(self._store.merge)
            while self._journal.expired:
                await beside(_delete, self._journal.expired.pop(0))

    # connections

    async def _admit_clients(self, listener: socket.socket, nursery: trio.Nursery) -> None:
        """Who comes when it is over is refused, and not kept waiting."""
        with self._admission:
            await self._from_clients.serve(listener, self._serve_client, nursery)

    async def _serve_client(self, below: trio.SocketStream, visitor: Visitor) -> None:
        with told(str(visitor), partial(self._guard.exceeded.update, ["opening"])):
            stream, sasl = await self._doors.client(tcp.prompt(below))
            await self._serve_guest(stream, sasl, visitor)

    async def _serve_guest(self, stream: trio.abc.Stream, sasl: SaslLayer, visitor: Visitor) -> None:
        limits, timing = self.topology.limits, self.topology.timing
        connection = Connection(
            self.clients,
            container=self.topology.mesh,
            server=True,
            properties={
                "router": self.name,
                "failover-server-list": self._failover_list(),
                DEAD: round(timing.dead * 1000),
            },
            max_frame=limits.max_frame,
            max_message=limits.max_message,
            idle_timeout=timing.idle,
            sasl=sasl,
            bounds=Bounds(limits.sessions, limits.links, limits.unsettled, limits.opening),
        )
        connection.context = visitor
        written = partial(self.clients.written, connection)
        await self._serve(stream, connection, self.node.pump, str(visitor), written, turn=self._turns.turn)

    async def _accept_neighbour(self, below: trio.SocketStream, visitor: Visitor) -> None:
        with told(str(visitor)):
            stream, sasl = await self._doors.neighbour(tcp.short(tcp.prompt(below)))
            connection = self._neighbour_connection(sasl, server=True)
            await self._serve_neighbour(stream, connection, str(visitor), visitor.admit)

    async def _visit_neighbour(self, below: trio.SocketStream, name: str) -> None:
        with told(f"router {name}"):
            stream, sasl = await self._doors.to_neighbour(tcp.short(tcp.prompt(below)), name)
            connection = self._neighbour_connection(sasl, server=False)
            connection.open()
            await self._serve_neighbour(stream, connection, f"router {name}", lambda: True)

    async def _serve_neighbour(
        self, stream: trio.abc.Stream, connection: Connection, peer: str, known: Callable[[], bool]
    ) -> None:
        """`known` is called once it is one."""

        def after_input() -> None:
            if self.neighbours.heard(connection):
                known()
            self.node.pump()

        await self._serve(stream, connection, after_input, peer, lambda: self.neighbours.written(connection))

    def _neighbour_connection(self, sasl: SaslLayer, *, server: bool) -> Connection:
        return Connection(
            self.neighbours,
            container=self.name,
            server=server,
            properties=self.neighbours.properties,
            max_frame=INTER_FRAME,
            max_message=INTER_MESSAGE,
            idle_timeout=_neighbour_idle(self.topology.timing),
            sasl=sasl,
        )

    async def _serve(
        self, stream: trio.abc.Stream, connection: Connection, after_input: Callable[[], None], peer: str,
        before_output: Callable[[], None] = lambda: None, turn: Callable[[], Awaitable[None]] = at_once,
    ) -> None:  # fmt: skip
        await serve(
            stream, connection, clock=self.node.now, after_input=after_input, before_output=before_output, turn=turn,
            outbound=self._outbound, peer=peer,
        )  # fmt: skip

    def _failover_list(self) -> list[dict[str, object]]:
        """The other routers of the mesh, as clients of the ecosystem expect them in the open's properties."""
        others = [config.told for name, config in self.topology.routers.items() if name != self.name]
        scheme = "amqps" if self.topology.security.tls else "amqp"
        return [{"network-host": at.host, "port": at.port, "scheme": scheme, "hostname": at.host} for at in others]


async def _next(period_s: float) -> None:
    """At the same instants for all timers of a period, and those that divide it (`Engine.tick`): who is idle is woken
    once for all of them."""
    await trio.sleep_until((trio.current_time() // period_s + 1) * period_s)


def _neighbour_idle(timing: Timing) -> float:
    return max(timing.idle, 2 * timing.dead)


def _kept(settings: LogSettings) -> Retention | None:
    return None if settings.keep is settings.size is None else Retention(settings.keep, settings.size)


def _delete(segment: Path) -> None:
    with contextlib.suppress(OSError):  # it is found again with the next segment
        segment.unlink(missing_ok=True)


async def run_router(
    topology: Topology, name: str, *, run_dir: Path, amqp_socket: socket.socket, inter_socket: socket.socket
) -> None:
    """Run one router on these listeners until it is told to stop."""
    tame()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # every client takes a file descriptor
    directory = run_dir / name
    directory.mkdir(parents=True, exist_ok=True)
    with StateStore(directory / "state.db", topology.mesh, name) as store:
        if not store.found and has_segments(directory / "log"):
            log.warning("router %s has run before, but its state.db is gone: it has forgotten its durable links", name)
        await Process(topology, name, directory, store).run(amqp_socket, inter_socket)
