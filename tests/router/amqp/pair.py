"""Two connections back to back in memory, for tests of the engine without a socket."""

from collections.abc import Callable
from typing import Any

from router.amqp.batches import Dispositions, ResumedTransfers, Transfers
from router.amqp.connection import Connection
from router.amqp.format.errors import AmqpError
from router.amqp.format.values import ErrorCondition, Handle
from router.amqp.handler import Handler
from router.amqp.proton.link import Link


class Recorder(Handler):
    """A handler that notes all events, and answers opens and begins."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.attached: list[Link] = []
        self.deliveries: list[Handle] = []
        self.tags: list[bytes] = []
        self.messages: list[bytes] = []
        self.presettled: list[bool] = []
        self.outcomes: list[tuple[Handle, int, bool]] = []
        self.resumed_deliveries: list[Handle] = []
        self.resumed: list[tuple[bytes, bytes, bool, int, bool]] = []  # tag, message, settled, state, aborted
        self.order: list[tuple[str, bytes]] = []  # of tags, ordinary or resumed
        self.echoes: list[Link] = []
        self.states: dict[Link, dict[str, int]] = {}
        self.credits: list[tuple[int, bool]] = []

    def on_open(self, connection: Connection) -> None:
        self.events.append(("open", connection.remote_container))
        connection.open()

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        self.events.append(("close", condition and condition.name))

    def on_attach(self, link: Link) -> None:
        self.events.append(("attach", link.name))
        self.attached.append(link)

    def on_attached(self, link: Link) -> None:
        self.events.append(("attached", link.name))

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        self.events.append(("detach", link.name, closed, condition and condition.name))

    def state_of(self, link: Link) -> dict[str, int] | None:
        return self.states.get(link)

    def on_credit(self, link: Link) -> None:
        self.credits.append((link.credit, link.draining))

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        self.deliveries += transfers.handles
        self.tags += transfers.tags
        self.order += [("new", tag) for tag in transfers.tags]
        self.messages += transfers.messages
        self.presettled += transfers.settled

    def on_resumed(self, link: Link, resumed: ResumedTransfers) -> None:
        self.resumed_deliveries += resumed.handles
        self.resumed += [row[1:] for row in resumed]
        self.order += [("resumed", tag) for tag in resumed.tags]

    def on_echo(self, link: Link) -> None:
        self.echoes.append(link)

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        self.outcomes += dispositions


class Pair:
    """A client and a server, each with its recorder. `pump` carries bytes until neither has any."""

    recorder = Recorder

    def __init__(self, kind: Callable[..., Connection] = Connection, **settings: Any) -> None:
        self.here, self.there = self.recorder(), self.recorder()
        self.client = kind(self.here, container="client", server=False, **settings)
        self.server = kind(self.there, container="server", server=True, **settings)
        self.errors: list[AmqpError] = []
        self.client.open()
        self.pump()

    def pump(self, now: float = 0.0) -> None:
        moved = True
        while moved:
            moved = self._carry(self.client, self.server, now)
            moved = self._carry(self.server, self.client, now) or moved

    def _carry(self, source: Connection, target: Connection, now: float) -> bool:
        data = source.data_to_send()
        if data:
            try:
                target.receive(data, now)
            except AmqpError as error:
                self.errors.append(error)
        return bool(data)

    def sending(self, credit: int = 100, **settings: Any) -> tuple[Link, Link]:
        """A link from the client, answered and with credit: (its sending end, the server's receiving end)."""
        sender = self.client.sender("link", "topic/x", **settings)
        self.pump()
        receiver = self.there.attached[-1]
        receiver.answer()
        receiver.flow(credit)
        self.pump()
        return sender, receiver
