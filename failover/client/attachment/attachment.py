"""Keeps one link attached to some router of a mesh. Connections come and go; unsettled deliveries stay unsettled.

When the client loses a connection, it tries its routers in turn, and attaches the link at the first one that takes it.
The link ends with an error only if no other router could help, or if the link has been lost for longer than its
timeout. The client sends the attach after the router's open: before the open, frames are too small for a map.

A client that can resume its link also receives from `$routers`. There the router lists the current routers, and may ask
the client to move to one of them. The client then drops the connection as after a loss, and tries that router first.

`endpoint` starts and ends the client; `publisher` and `subscriber` write the attach and handle deliveries.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import trio

from failover.client.attachment.refusals import OF_ROUTER, STOLEN, error_of, no_router
from failover.client.attachment.routers import RouterAddress, Routers, read_list
from failover.client.attachment.silence import Patience, silence
from failover.client.errors import ClientError, MovingError, why_unreachable
from failover.client.link_events import MISSED, Connected, Listener, Lost, Searching
from failover.client.log import ClientLog
from router.amqp.batches import Transfers
from router.amqp.connection import Connection
from router.amqp.format.values import ErrorCondition
from router.amqp.handler import Handler
from router.amqp.proton.link import Link
from router.amqp.sasl.client import SaslClient
from router.amqp.sasl.credentials import Credentials
from router.amqp.transport import serve
from topic.identity import EPOCH_TEXT, GENERATION_LENGTH, LinkIdentity
from topic.properties import EPOCH, GENERATION, ROUTERS, SERVER_LIST

# The seconds that the client waits until a router accepts a connection, while there is another router to try.
CONNECT_S: Final = 1.0
# The seconds that the client waits until the last router of a round accepts a connection.
# This is more than CONNECT_S, because hosts and clients may be busy.
LAST_CONNECT_S: Final = 5.0
# The seconds that the client waits for the answer to an attach. The router may have to ask other routers first.
ATTACH_S: Final = 30.0
# A link that was attached for this many seconds has *lived*: the client does not count its loss as a failed attempt.
LIVED_S: Final = 1.0
# The credit that the client gives for messages from `$routers`.
LISTS: Final = 8
# The least seconds between two moves that routers ask for. The time doubles with each move.
REST_S: Final = 60.0
LONGEST_REST_S: Final = 3600.0


class Attachment(Handler):
    """Attaches one link again and again, and handles the events of its connections. The tasks that serve the
    connections run in the nursery `_connections`."""

    _connections: trio.Nursery

    def __init__(
        self,
        urls: Sequence[str],
        identity: LinkIdentity,
        timeout: int,
        idle: float,
        events: Listener | None,
        log: ClientLog | None,
        credentials: Credentials,
        *,
        moves: bool,
    ) -> None:
        self.identity = identity
        self._moves = moves
        self._credentials = credentials
        self.generation: bytes | None = None  # the generation in the router's answer to the attach
        self.epoch: str | None = None  # the epoch in the router's answer to the attach
        # The seconds for which the routers wait for the lost link, according to the router's answer to the attach.
        self.granted_timeout = 0
        self._routers = Routers(urls, f"{identity.container} {identity.link}")
        self._timeout = timeout
        self._idle = idle
        self._patience = Patience(idle)
        self._tell = events or (lambda event: None)
        self._log = log
        self._resumes = False  # whether a router has ever answered an attach of this link
        # Whether the client has reported since the last loss that no router takes the link (`Searching`).
        self._searches = False
        # True from the time when a router ends the link with MISSED, until a router answers an attach.
        # Each attach carries this value as the property TOLD.
        self._told = False
        self._connection: Connection | None = None  # the connection that the client uses at present
        self._beside: trio.Nursery  # the tasks that end with the connection
        self._attaching: Link | None = None  # the link on this connection, once the client has sent its attach
        self._link: Link | None = None  # the same link, once the router has answered the attach
        self._listening: Link | None = None  # the link on which `$routers` sends its lists
        self._rest_s = REST_S
        self._rested = 0.0  # the time before which the client does not move again
        # The number of attaches that were sent and given up before their answer. A router may still read them.
        self._ghosts = 0
        self._over = trio.Event()  # set when the client stops using the current connection
        self._since = 0.0  # the time when the link was attached or lost, or when the search for a router began
        self._attached = trio.Event()  # set at the first answer to an attach, or when the client gives up
        self._error: ConnectionError | None = None
        self._news = trio.lowlevel.ParkingLot()  # the tasks that wait for a change

    # The methods from here on are for subclasses.

    def _attach(self, connection: Connection) -> Link:
        """Send the attach, and return its link. Each subclass sends its own attach."""
        raise NotImplementedError

    @property
    def _may_move(self) -> bool:
        """Whether the client moves when a router asks for it: moves are enabled, and the link can be resumed."""
        return self._moves and self._timeout > 0

    def _granted(self, link: Link, generation: bytes | None) -> None:
        """Called when the router has answered the attach. Its answer names this generation; `self.generation` still has
        the generation of the previous answer."""

    def _settled_on(self) -> None:
        """Called when `generation` and `epoch` have got the values of the router's answer to the attach."""

    def _parted(self) -> None:
        """Called when the link is lost. The engine's handles of its deliveries are no longer valid."""

    def _asked(self, link: Link) -> None:
        """Answer the router, which asked with an echo, unless the client has left this link."""
        if link is self._link:
            link.answer_echo()
            link.connection.wake()

    async def _change(self) -> None:
        """Wait until something changes. Raises ConnectionError if the link has ended for good."""
        self._check()
        await self._news.park()
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _stay_attached(self) -> None:
        while self._error is None:
            await trio.sleep(self._routers.pause)
            router = self._routers.current
            try:
                with trio.fail_after(LAST_CONNECT_S if self._routers.at_last else CONNECT_S):
                    stream = await self._connect(router)
            except (OSError, ValueError, trio.TooSlowError) as reason:
                # A ValueError says that the host name is not valid.
                why = why_unreachable(reason)
                self._not_taken(ConnectionError(f"cannot reach a router at {router.host}:{router.port}: {why}"))
            else:
                await self._use(router, stream)

    async def _connect(self, router: RouterAddress) -> trio.abc.Stream:
        below = await trio.open_tcp_stream(router.host, router.port)
        if not router.tls:
            return below
        try:
            return await self._credentials.secure(below, router.host)
        except BaseException:
            await trio.aclose_forcefully(below)
            raise

    async def _use(self, router: RouterAddress, stream: trio.abc.Stream) -> None:
        """Attach the link on this connection, and wait until the client stops using the connection."""
        self._over = trio.Event()
        connection = self._connection = Connection(
            self,
            container=self.identity.container,
            server=False,
            hostname=router.host,
            idle_timeout=self._idle,
            asked=self._asked,
            sasl=SaslClient(self._credentials.proofs(tls=router.tls)),
        )
        connection.open()
        serving = trio.CancelScope()
        save = self._log.save if self._log is not None else _nothing
        self._connections.start_soon(_serve, stream, connection, serving, save)
        try:
            async with trio.open_nursery() as nursery:
                self._beside = nursery
                nursery.start_soon(self._await_attach, router)
                nursery.start_soon(self._watch, router, connection, serving)
                await self._over.wait()
                nursery.cancel_scope.cancel()
        finally:
            connection.close()
            connection.wake()
            if not connection.opened:  # a peer that has not sent its open does not answer a close
                serving.cancel()

    async def _await_attach(self, router: RouterAddress) -> None:
        with trio.move_on_after(ATTACH_S) as patience:
            while self._link is None:
                await self._news.park()
        if patience.cancelled_caught:
            self._lose(ClientError(None, f"the router at {router.url} did not answer the attach"))

    async def _watch(self, router: RouterAddress, connection: Connection, serving: trio.CancelScope) -> None:
        """Drop the connection when the router has been silent for too long. Does not wait for an answer to the close.

        If the router wakes up later, it must find the connection closed. With an open connection, the router would
        take the client for attached, and resume the link.
        """
        await silence(connection, self._patience)
        self._lose(ClientError(None, f"the router at {router.url} is silent"), elsewhere=True)
        serving.cancel()

    def _lose(self, error: ClientError, *, fatal: bool = False, elsewhere: bool = False) -> None:
        """Stop using the current connection. Unsettled deliveries stay unsettled, and the next connection resumes them.

        `fatal` means that the link ends for good, `elsewhere` that the client tries another router first.
        """
        was_attached = self._link is not None
        self._ghosts += self._attaching is not None and not was_attached
        self._connection = self._attaching = self._link = self._listening = None
        self._over.set()
        self._news.unpark_all()
        if was_attached:
            self._parted()
            if not fatal:
                self._searches = False
                self._tell(Lost(str(error), error.condition))
        if fatal:
            self._give_up(error)
        elif was_attached:
            self._lost_link(error, elsewhere=elsewhere or error.condition is not None)
        else:
            self._not_taken(error)

    def _lost_link(self, error: ClientError, *, elsewhere: bool) -> None:
        lived_s = trio.current_time() - self._since
        self._since += lived_s
        if lived_s < LIVED_S:
            self._failed(error)
        elif self._timeout == 0:
            self._give_up(error)
        else:
            # Try the same router first: if it lives, it knows most about the unsettled deliveries of this link.
            self._routers.succeeded()
            if elsewhere:  # the router sent the client away, or fell silent
                self._routers.choose_next()

    def _failed(self, error: ConnectionError) -> None:
        """Count an attempt that failed, or a link that was lost soon after the attach.

        If no router has ever taken the link, the client gives up after one round through the routers. Otherwise it
        tries until the link's timeout is over.
        """
        self._routers.failed()
        if not self._resumes:
            if self._routers.exhausted:
                self._give_up(error)
        elif self._left <= 0.0:
            self._give_up(error)

    def _not_taken(self, error: ConnectionError) -> None:
        """Count a router that has not taken the link. After the first round without success, report `Searching`."""
        self._failed(error)
        if self._resumes and self._error is None and self._routers.exhausted and not self._searches:
            self._searches = True
            self._tell(Searching(str(error), self._left))

    @property
    def _left(self) -> float:
        """The seconds for which the client can still resume the lost link."""
        return self._timeout - (trio.current_time() - self._since)

    def _give_up(self, error: ConnectionError) -> None:
        if self._error is None:
            self._error = error
        self._attached.set()
        self._news.unpark_all()

    # The methods from here on handle events of the connection.

    def on_open(self, connection: Connection) -> None:
        self._routers.learn(connection.remote_properties.get(SERVER_LIST))
        self._patience.learn(connection.remote_properties)
        if connection is self._connection:
            self._attaching = self._attach(connection)

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        if connection is self._connection:
            opened = self._attaching is not None or self._link is not None
            self._lose(error_of(condition) if opened else no_router(self._routers.current, condition))

    def on_attach(self, link: Link) -> None:
        link.refuse("amqp:not-allowed", "this client accepts no links")

    def on_attached(self, link: Link) -> None:
        terminus = link.remote_target if link.is_sender else link.remote_source
        if link is not self._attaching or terminus is None:
            return  # the router refuses the link, and gives the reason in its detach
        generation, epoch = link.remote_properties.get(GENERATION), link.remote_properties.get(EPOCH)
        if not isinstance(generation, bytes) or len(generation) != GENERATION_LENGTH:
            generation = None
        self._link = link
        self.granted_timeout = terminus.timeout
        self._since = trio.current_time()
        router = link.connection.remote_properties.get("router")
        self._tell(Connected(self._routers.current.url, router if isinstance(router, str) else ""))
        self._attached.set()
        self._resumes = True
        self._told = False
        self.epoch = str(epoch) if isinstance(epoch, str) and EPOCH_TEXT.fullmatch(epoch) else None
        self._granted(link, generation)
        self.generation = generation
        self._settled_on()
        if self._may_move and self._connection is not None:  # None if the link has ended in one of the calls above
            self._listening = self._connection.receiver(ROUTERS, ROUTERS)
            self._listening.flow(LISTS)
        self._news.unpark_all()

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        """Read the lists that `$routers` sends. Subclasses handle the transfers of the link itself."""
        for message in transfers.messages:
            if link is self._listening:
                link.flow(1)
                self._follow(*read_list(message))
        link.connection.wake()

    def _follow(self, servers: Any, asked: bool) -> None:
        """Learn the routers of a list, and move to the first one if the router asks for it. The client leaves some time
        between two moves, because the next router may refuse the link, or ask the client to move again."""
        self._routers.learn(servers)
        now = trio.current_time()
        if asked and now >= self._rested and (other := self._routers.other(servers)) is not None:
            self._rested, self._rest_s = now + self._rest_s, min(2 * self._rest_s, LONGEST_REST_S)
            self._lose(MovingError())
            self._routers.move_to(other)

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        if link is self._attaching:
            if self._link is None:  # the router has refused the link
                self._attaching = None
            self._told = self._told or (condition is not None and condition.name == MISSED)
            fatal = closed and condition is not None and self._is_fatal(condition)
            self._lose(error_of(condition, self.identity.container if fatal else ""), fatal=fatal)

    def _is_fatal(self, condition: ErrorCondition) -> bool:
        """Whether an error with this condition ends the link for good, because all routers would refuse the link.

        If the client has given up an attach before its answer (`_ghosts`), the error STOLEN does not end the link: a
        router has read this attach late, and so the client itself has stolen its link. Another router takes the link.
        """
        if condition.name == STOLEN and self._ghosts:
            self._ghosts -= 1
            return False
        return condition.name not in OF_ROUTER

    def on_credit(self, link: Link) -> None:
        self._news.unpark_all()


async def _serve(
    stream: trio.abc.Stream, connection: Connection, scope: trio.CancelScope, save: Callable[[], None]
) -> None:
    with scope:
        await serve(stream, connection, after_input=save, before_output=save)


def _nothing() -> None:
    """Do nothing, because a client without a log has nothing to save."""
