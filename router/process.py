"""A router process: one trio run that owns the cores, the sockets and the delivery log (architecture: the process).

The nesting of tasks shows the ownership: listeners own their connections, and each dialler owns the connection to its
neighbour. An error of a peer ends only the peer's connection. Any other exception ends the router, and the rest of the
mesh goes on.
"""

import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from router.admission import Admission, Handler, Visitor, descriptors, take_descriptors
from router.amqp import tcp
from router.amqp.body_connection import BodyConnection
from router.amqp.connection import Connection
from router.amqp.driven import DrivenConnection, Outbound
from router.amqp.format.values import Bounds
from router.amqp.proton.loops import LOOPS
from router.amqp.sasl.layer import SaslLayer
from router.amqp.transport import at_once, read_first, serve
from router.edge import anonymous
from router.edge.clients import ClientEdge
from router.edge.guard import Guard
from router.edge.status_node import STATUS_ADDRESS, StatusNode
from router.edge.topics import Topics
from router.edge.ttl import left_ms
from router.entities.observed import ObservedRouter
from router.entities.report import only_of, report
from router.events.kind import EventKind, event
from router.garbage import FreeMemory, collect_rarely, return_large_blocks
from router.journal import FLUSH_S, JournalFile, has_segments
from router.log_limit import limit_logs
from router.management.node import Callers, management_of
from router.management.queues import SetRequests
from router.management.recent_events import RecentEvents
from router.mesh.config import AMQP, GO_ON, HTTP, INTER, MQTT, MQTT_WS, Topology, kind_of
from router.mesh.errors import RunError
from router.mesh.listeners import Listeners
from router.mesh.planned import planned, sets_of, settings_of
from router.mesh.quantities import Address, format_duration
from router.mesh.signals import APPLY, taken
from router.neighbours import LANES, Neighbours, keep_dialling
from router.plan.alternates import Alternates
from router.plan.departure import Departure
from router.plan.dials import Dials
from router.plan.probes import Probes
from router.plan.request import Start, apply
from router.plan.routers_node import RoutersNode
from router.retention import Retention, delete
from router.security.attempts import Guesses
from router.security.doors import Doors, LetIn, told
from router.shell import Shell
from router.store import StateStore, set_aside
from router.turns import ClientTurns, next_look
from router.watchdog import watched
from topic.journal import Block
from topic.node import Node, boot
from topic.properties import DEAD, ROUTERS, SERVER_LIST
from topic.restatement import restate

if TYPE_CHECKING:
    from router.mqtt.listener import MqttListener
    from router.queues.replicas import RouterReplicas
    from router.queues.store import QueueStore

log = logging.getLogger("oncemesh")

INTER_FRAME = 256 * 1024
INTER_MESSAGE = 16 << 20
GOODBYE_S = 1.0
"""A stopping router gives its peers this many seconds to read its close frames."""
LOOK_S = 0.01


class Process:
    """One router of a topology, with the state that its earlier incarnations have left."""

    def __init__(
        self,
        topology: Topology,
        name: str,
        directory: Path,
        store: StateStore,
        starts: Start = Start.AGAIN,
        queue_store: "QueueStore | None" = None,
    ) -> None:
        """`queue_store`: the store of replica sets; None if the mesh has no queues."""
        self.topology = topology
        self.name = name
        self._store = store
        self._run_dir = directory.parent
        self._starts = starts
        self._doors = Doors(topology, name)
        timing, limits = topology.timing, topology.limits
        incarnation = store.begin(time.time_ns() // 1_000_000)
        block = Block(name, "router", incarnation, host=socket.gethostname())
        settings = settings_of(topology)
        shell = Shell(self)
        mesh, topic = boot(
            name,
            incarnation,
            planned(topology),
            block,
            settings,
            store,
            shell,
            hello=timing.hello,
            max_payload=settings.largest,
            sets=sets_of(topology).plans,
        )
        self._requests = SetRequests()
        self._replicas = self._replicas_of(queue_store) if queue_store is not None else None
        members = mesh.plan.members
        port = self._replicas.port(topology, topic, members, left_ms) if self._replicas is not None else None
        self.node = Node(mesh, topic, store, shell, port)
        self._guard = Guard(self._doors, limits)
        callers = Callers()
        topics = Topics(self.node, topology.addresses, limits.max_message, timing.terminus, self._guard, callers)
        self.clients = ClientEdge(self.node, topics, self._guard)
        self._mesh = mesh
        keep, size, goes_on = topology.log.keep, topology.log.size, topology.log.full == GO_ON
        kept = None if keep is size is None else Retention(keep, size)
        anew = partial(restate, topic)
        self._journal = JournalFile(directory / "log", incarnation, block, goes_on=goes_on, kept=kept, restate=anew)
        self._departure = Departure(self.node, mesh, self)
        closed = topology.security.closes_mesh
        self.neighbours = Neighbours(self.node, mesh, topology.mesh, self._departure, closed=closed)
        for_neighbours, for_clients = descriptors(len(mesh.neighbours))
        self._from_neighbours = Admission(for_neighbours, timing.neighbour_idle)
        self._turns = ClientTurns()
        self._routers = RoutersNode(Alternates(self.node, mesh, topology.security), timing.dead, self._turns.turn)
        self._outbound = Outbound()
        self._from_clients = Admission(
            for_clients, limits.opening, self._turns.turn, limits.connections, self._guard.exceed
        )
        self._events = RecentEvents(name, incarnation)
        at = self._observed = ObservedRouter(
            topology,
            self.node,
            mesh,
            self.clients,
            self.neighbours,
            self._journal,
            self._guard,
            self._from_clients,
            self._events,
            directory,
            self._replicas,
        )
        self._status = StatusNode(partial(report, at), self)
        self._management = management_of(at, self._events, self._requests, self._turns.turn, callers)
        self._timer = trio.CancelScope()
        self._admission = trio.CancelScope()

    async def run(self, listeners: Listeners) -> None:
        """Serve until the router has to stop."""
        trio.lowlevel.add_instrument(self._turns)
        trio.lowlevel.add_instrument(self._doors.checks)
        with watched(self.topology.timing.dead), self._events.listening(self.node.topic.outlet):
            await self._run(listeners)

    async def _run(self, listeners: Listeners) -> None:
        async with trio.open_nursery() as nursery:
            tasks = (
                self._timers,
                self._write_journal,
                self._tidy,
                self._status.run,
                self._routers.run,
                self._management.run,
                limit_logs,
                self._doors.reload_on_hangup,
                self._apply_when_told,
            )
            for task in tasks:
                nursery.start_soon(task)
            if self._replicas is not None:
                nursery.start_soon(self._replicas.run)
            nursery.start_soon(self._admit_clients, self._for_clients(listeners), nursery)
            for name, listener in listeners.items():
                if kind_of(name) == INTER:
                    nursery.start_soon(self._from_neighbours.serve, listener, self._accept_neighbour, nursery)
                elif kind_of(name) == HTTP:
                    nursery.start_soon(self._show, listener)
            self._dials = Dials(self._mesh, nursery, self._dial)
            self._probes = Probes(self.node, self._mesh, nursery, self._is_gone)
            if self._starts is Start.MESH:
                apply(self.node, self._mesh, self._run_dir, afresh=True)
            self.planned()
            with self._departure.asked() as signals:
                self._log_boot(Address(*listeners[AMQP].getsockname()[:2]))
                await self._departure.until_told(signals)
            await self._goodbye()
            nursery.cancel_scope.cancel()
        self.node.stop()
        self._journal.close()

    def _log_boot(self, at: Address) -> None:
        told = event(EventKind.BOOT, incarnation=self.node.incarnation)
        log.info("router %s of mesh %s serves %s", self.name, self.topology.mesh, at, extra=told)
        if not LOOPS.is_compiled:
            log.warning(
                "the router takes more processor time: its inner loops are not compiled, or are older than loops.c; "
                "install again with a C compiler and without ONCEMESH_INTERPRETED"
            )
        if awaited := self.node.topic.boot.waiting_for:
            longest = format_duration(self.topology.timing.boot_wait)
            log.info(
                "the router waits for %s before it answers publishers, for %s at most", " and ".join(awaited), longest
            )

    async def _show(self, http: socket.socket) -> None:
        """Serve HTTP. Its modules are loaded only if the router has such a listener."""
        from router.http.listener import WebListener

        await WebListener(self._observed, self._management, self._doors, self._turns.turn).run(http)

    def _replicas_of(self, store: "QueueStore") -> "RouterReplicas":
        """Load the code of replica sets, which only a mesh with queues needs."""
        from router.queues.replicas import RouterReplicas

        return RouterReplicas(self, store, self._requests)

    def view(self, report: bytes, user: str) -> bytes:
        """The part of a report that a user may see."""
        return report if self._guard.sees_all(user) else only_of(user, report)

    # `router.plan.departure` calls the methods from here on (`Leaver`).

    def send_clients_away(self) -> None:
        self._admission.cancel()
        self.clients.close("amqp:connection:forced", "the router stops")

    async def _goodbye(self) -> None:
        """Send the clients to other routers, hand over the lead of replica sets, and close the connections with
        neighbours. The clients' links are not closed, so that the clients can resume them."""
        log.info("stopping", extra=event(EventKind.STOPPING))
        self.send_clients_away()
        await self.hand_over()
        self.neighbours.close()
        with trio.move_on_after(GOODBYE_S):
            while self.clients.connections or self.neighbours.parting:
                await trio.sleep(LOOK_S)

    async def hand_over(self) -> None:
        """Hand the lead of this router's replica sets to other routers, so that the sets need no election. If the whole
        mesh stops, the sets keep their leaders."""
        sets = self.node.sets
        if sets is None:
            return
        sets.leave(self.node.now(), all_stop=self._departure.all_stop)
        self.step()
        with trio.move_on_after(self.topology.timing.dead):
            while sets.to_hand_over:
                await trio.sleep(LOOK_S)

    # The methods from here on are about timers and slow work.

    async def _timers(self) -> None:
        """Call the cores at their deadline. Every pump may change the deadline."""
        while True:
            with trio.CancelScope(deadline=self.node.deadline()) as self._timer:
                await trio.sleep_forever()
            await read_first(self._timer.deadline)
            with self._outbound:
                self.node.handle_timer()
                self.node.pump()

    def step(self) -> None:
        """Pump the node: carry out the outputs of an event (`router.queues.replicas.ReplicasOwner`)."""
        with self._outbound:
            self.node.pump()

    async def _write_journal(self) -> None:
        while True:
            self._journal.flush()
            await next_look(FLUSH_S)

    async def _tidy(self) -> None:
        """Do slow work in threads, because it waits for the disk or the kernel: return memory, merge the store, delete
        segments."""
        beside, memory = partial(trio.to_thread.run_sync, abandon_on_cancel=True), FreeMemory()
        while True:
            await next_look(FLUSH_S)
            await beside(memory.give_back)
            if self._store.is_to_be_merged:
                await beside(self._store.merge)
            while self._journal.expired:
                await beside(delete, self._journal.expired.pop(0))

    # The methods from here on serve connections.

    async def _admit_clients(self, listeners: Mapping[socket.socket, Handler], nursery: trio.Nursery) -> None:
        """Accept clients. At the end, the listeners close at once, so that new connections are refused instead of
        waiting."""
        with self._admission:
            while self._starts is Start.JOIN and not self.node.topic.boot.has_joined:
                await trio.sleep(LOOK_S)
            async with trio.open_nursery() as accepting:
                for listener, handler in listeners.items():
                    accepting.start_soon(self._from_clients.serve, listener, handler, nursery)

    def _for_clients(self, listeners: Listeners) -> dict[socket.socket, Handler]:
        """The handlers of clients. Modules of MQTT and WebSocket are loaded only if the router has such a listener."""
        kinds = {kind_of(name) for name in listeners}
        mqtt = self._mqtt() if not kinds.isdisjoint((MQTT, MQTT_WS)) else None
        found = dict[socket.socket, Handler]()
        for router, name, address in self.topology.listeners():
            kind, anybody = kind_of(name), self.topology.security.admits_anybody(name, address.host)
            if router != self.name or kind in (INTER, HTTP):
                continue
            protocol = MQTT if kind in (MQTT, MQTT_WS) else AMQP
            let_in = self._doors.let_in if kind == protocol else self._over_websocket(protocol, address.host)
            if mqtt is not None and protocol == MQTT:
                found[listeners[name]] = mqtt.handler(address.host, let_in, anybody=anybody)
            else:
                found[listeners[name]] = partial(self._serve_client, let_in, anybody)
        return found

    def _mqtt(self) -> "MqttListener":
        from router.mqtt.listener import MqttListener

        return MqttListener(self._observed, self._guard, self._doors, self._turns.turn, self)

    def _over_websocket(self, protocol: str, host: str) -> LetIn:
        from router.websocket.entrance import WebSocketEntrance

        return WebSocketEntrance(self._doors, self.topology, protocol, host).let_in

    async def _serve_client(self, let_in: LetIn, anybody: bool, below: trio.SocketStream, visitor: Visitor) -> None:
        with told(str(visitor), partial(self._guard.exceeded.update, ["opening"])):
            stream, certified, guesses = await let_in(tcp.prompt(below))
            sasl = self._doors.sasl_of(certified, guesses, anybody=anybody)
            await self._serve_guest(stream, sasl, guesses, visitor)

    async def _serve_guest(self, stream: trio.abc.Stream, sasl: SaslLayer, guesses: Guesses, visitor: Visitor) -> None:
        limits, timing = self.topology.limits, self.topology.timing
        connection = Connection(
            self.clients,
            container=self.topology.mesh,
            server=True,
            properties={
                "router": self.name,
                SERVER_LIST: self._routers.alternates(),
                DEAD: round(timing.dead * 1000),
            },
            offers=anonymous.CAPABILITY,
            max_frame=limits.max_frame,
            max_message=limits.max_message,
            idle_timeout=timing.idle,
            sasl=sasl,
            bounds=Bounds(limits.sessions, limits.links, limits.unsettled, limits.opening),
        )
        connection.context = visitor
        written = partial(self.clients.written, connection)
        turn = guesses.after(self._turns.turn, lambda: connection.opened)
        await self.drive(stream, connection, self.node.pump, str(visitor), written, turn)

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
        """Serve a connection with a neighbour. `known` is called when the peer has opened as a neighbour."""

        def after_input() -> None:
            if self.neighbours.bytes_received(connection):
                known()
            self.node.pump()

        await self.drive(stream, connection, after_input, peer, lambda: self.neighbours.written(connection))

    def _neighbour_connection(self, sasl: SaslLayer, *, server: bool) -> BodyConnection:
        return BodyConnection(
            self.neighbours,
            container=self.name,
            server=server,
            properties=self.neighbours.properties,
            max_frame=INTER_FRAME,
            max_body=INTER_MESSAGE,
            lanes=len(LANES),
            idle_timeout=self.topology.timing.neighbour_idle,
            sasl=sasl,
        )

    async def drive(
        self,
        stream: trio.abc.Stream,
        connection: DrivenConnection,
        after_input: Callable[[], None],
        peer: str,
        before_output: Callable[[], None] = lambda: None,
        turn: Callable[[], Awaitable[None]] = at_once,
    ) -> None:
        await serve(
            stream,
            connection,
            clock=self.node.now,
            after_input=after_input,
            before_output=before_output,
            turn=turn,
            outbound=self._outbound,
            peer=peer,
        )

    # The shell calls the methods from here on (`router.shell.ShellOwner`).

    def pumped(self) -> None:
        self._journal.save()
        deadline = self.node.deadline()
        if deadline != self._timer.deadline:
            self._timer.deadline = deadline

    def parted(self, router: str) -> None:
        self._probes.contact_lost(router)

    def receive_from_shell(self, router: str, payload: bytes) -> None:
        self._management.receive(router, payload)

    def planned(self) -> None:
        routers = self._mesh.plan.listed
        self.clients.nodes = {STATUS_ADDRESS: self._status, ROUTERS: self._routers, **self._management.table(routers)}
        self._doors.follow(routers)
        self.neighbours.follow()
        self._dials.follow()
        self._departure.follow()

    def _is_gone(self, neighbour: str) -> None:
        """Tell the core that the process of this neighbour has ended."""
        log.info("router %s has ended: its host refuses connections to its port", neighbour)
        with self._outbound:
            self.node.refused(neighbour)
            self.node.pump()

    async def _dial(self, neighbour: str, address: Address) -> None:
        await keep_dialling(neighbour, address, self.topology.timing.neighbour_idle, self._visit_neighbour)

    async def _apply_when_told(self) -> None:
        with taken(APPLY) as signals:
            async for _ in signals:
                apply(self.node, self._mesh, self._run_dir)


async def run_router(
    topology: Topology, name: str, *, run_dir: Path, listeners: Listeners, starts: Start = Start.AGAIN
) -> None:
    """Run one router on these listeners until it has to stop."""
    collect_rarely()
    return_large_blocks()
    take_descriptors()
    directory = run_dir / name
    directory.mkdir(parents=True, exist_ok=True)
    if starts is Start.JOIN:
        set_aside(directory / "state.db")
    with (
        StateStore(directory / "state.db", topology.mesh, name) as store,
        _queue_store(topology, name, directory) as queue_store,
    ):
        if not store.found and starts is not Start.JOIN and has_segments(directory / "log"):
            log.warning("router %s ran before, but its state.db is missing: its durable links are forgotten", name)
        if starts is not Start.MESH and planned(topology).merge(store.plan).is_out(name, time.time_ns() // 1_000_000):
            raise RunError(f"router {name} was removed from mesh {topology.mesh}; to add it again, use oncemesh apply")
        await Process(topology, name, directory, store, starts, queue_store).run(listeners)


def _queue_store(topology: Topology, name: str, directory: Path) -> "AbstractContextManager[QueueStore | None]":
    """The store of replica sets; None if the mesh has no queues. Without queues its code is not loaded."""
    if topology.queues is None:
        return nullcontext()
    from router.queues.replicas import open_store

    return open_store(topology, name, directory)
