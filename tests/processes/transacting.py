"""A client of proton that moves messages from one queue to another, some in each transaction."""

from collections.abc import Callable, Sequence
from typing import Any

from proton import Delivery, Event, Message, Terminus
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, Transaction

from router.mesh.quantities import Address

STEPS = ("declared", "transferred", "accepted", "discharged")
"""What the client has just done or sent, in the order of these steps."""


class Mover(MessagingHandler, TransactionHandler):
    """Moves messages until it is told to stop. If its connection breaks, it goes to the next router."""

    def __init__(
        self, addresses: Sequence[Address], source: str, target: str, batch: int, at: Callable[[str, int], bool]
    ) -> None:
        """`batch`: messages of each transaction. `at`: called at each step, and after each commit ("committed"), with
        the place of the present router among the addresses. Returns whether to go on."""
        MessagingHandler.__init__(self, prefetch=0, auto_accept=False)
        TransactionHandler.__init__(self)
        self._addresses = addresses
        self._source, self._target = source, target
        self._batch = batch
        self._at = at
        self._place = 0
        self._is_over = False
        self._forget()
        self.committed, self.rolled_back, self.doubted = 0, 0, 0

    def _forget(self) -> None:
        self._transaction: Transaction | None = None
        self._taken: list[Delivery] = []
        self._bodies: list[bytes] = []
        self._is_discharged = False

    def run(self) -> "Mover":
        Container(self).run()
        return self

    def on_start(self, event: Event) -> None:
        self._container = event.container
        self._connect()

    def _connect(self) -> None:
        url = f"amqp://{self._addresses[self._place]}"
        self._connection = self._container.connect(url, reconnect=False)
        self._is_lost = False
        self._receiver = self._container.create_receiver(self._connection, self._source)
        self._sender = self._container.create_sender(self._connection, self._target)
        self._declare()

    def _declare(self) -> None:
        self._forget()
        self._container.declare_transaction(self._connection, handler=self, settle_before_discharge=True)

    def _step(self, name: str) -> None:
        if not self._is_over and not self._at(name, self._place):
            self._is_over = True
            self._connection.close()

    # events

    def on_transaction_declared(self, event: Event) -> None:
        self._transaction = event.transaction
        self._step("declared")
        self._receiver.flow(self._batch)

    def on_message(self, event: Event) -> None:
        assert self._transaction is not None and event.delivery is not None
        self._bodies.append(bytes(event.message.body))
        self._taken.append(event.delivery)
        self._go_on()

    def on_sendable(self, event: Event) -> None:
        self._go_on()

    def _go_on(self) -> None:
        if self._transaction is None or self._is_discharged or len(self._taken) < self._batch:
            return
        while self._bodies and self._sender.credit:
            self._transaction.send(self._sender, Message(body=self._bodies.pop(0)))
        if self._bodies:
            return
        self._step("transferred")
        for delivery in self._taken:
            self._transaction.accept(delivery)
        self._step("accepted")
        self._transaction.commit()
        self._is_discharged = True
        self._step("discharged")

    def on_transaction_committed(self, event: Event) -> None:
        self.committed += 1
        self._is_discharged = False
        self._step("committed")
        if not self._is_over:
            self._declare()

    def on_transaction_commit_failed(self, event: Event) -> None:
        self.rolled_back += 1
        self._declare()

    def on_disconnected(self, event: Event) -> None:
        if not self._is_over and event.connection == self._connection and not self._is_lost:  # proton tells it twice
            self._is_lost = True
            self.doubted += self._is_discharged
            self._forget()
            self._place = (self._place + 1) % len(self._addresses)
            self._container.schedule(0.1, self)

    def on_timer_task(self, event: Event) -> None:
        self._connect()


class Actor(MessagingHandler, TransactionHandler):
    """Declares a transaction, and does some acts in it. Ends when it has read as many answers as expected."""

    def __init__(self, address: Address, acts: Sequence[tuple[str, str]], answers: int) -> None:
        """`acts`: each is "accept" with a queue, "send" with an address, "relay" with one
        that a message names, "commit", "abort", "close", or "forge", which
        changes the name of the transaction."""
        MessagingHandler.__init__(self, prefetch=0, auto_accept=False)
        TransactionHandler.__init__(self)
        self._address = address
        self._acts = [*acts]
        self._answers = answers
        self._has_sent = False
        self._to: str | None = None
        self.told: list[str] = []
        """What the router has told: the end of the transaction, and errors of links."""

    def run(self) -> None:
        Container(self).run()

    def on_start(self, event: Event) -> None:
        self._container = event.container
        self._connection = self._container.connect(f"amqp://{self._address}", reconnect=False)
        self._container.declare_transaction(self._connection, handler=self)

    def on_transaction_declared(self, event: Event) -> None:
        self._transaction = event.transaction
        self._act()

    def _act(self) -> None:
        act, address = self._acts.pop(0) if self._acts else ("", "")
        if act == "accept":
            self._container.create_receiver(self._connection, address).flow(1)
        elif act == "send":
            self._container.create_sender(self._connection, address)
        elif act == "relay":
            self._to = address
            self._container.create_sender(self._connection, None)
        elif act == "forge":
            self._transaction.id = b"there is none"
            self._act()
        elif act == "close":
            self._connection.close()
        elif act:
            (self._transaction.commit if act == "commit" else self._transaction.abort)()

    def on_message(self, event: Event) -> None:
        assert event.delivery is not None
        self._transaction.accept(event.delivery)
        self._act()

    def on_sendable(self, event: Event) -> None:
        assert event.sender is not None
        if event.sender.target.type != Terminus.COORDINATOR and not self._has_sent:
            self._has_sent = True
            self._transaction.send(event.sender, Message(body=b"0", address=self._to))
            self._act()

    def _hear(self, what: str) -> None:
        self.told.append(what)
        if len(self.told) == self._answers:
            self._connection.close()

    def on_delivery(self, event: Event) -> None:
        told: Any = event.delivery.remote.data if event.sender is not None and event.delivery is not None else None
        if told is not None and told[1:] and told[1].descriptor == Delivery.REJECTED:
            self._hear(f"rejected {told[1].value[0].value[0]}")

    def on_transaction_committed(self, event: Event) -> None:
        self._hear("committed")

    def on_transaction_aborted(self, event: Event) -> None:
        self._hear("aborted")

    def on_transaction_commit_failed(self, event: Event) -> None:
        assert event.delivery is not None and event.delivery.remote.condition is not None
        self._hear(f"failed {event.delivery.remote.condition.name}")

    def on_link_remote_detach(self, event: Event) -> None:
        assert event.link is not None and event.link.remote_condition is not None
        self._hear(f"link {event.link.remote_condition.name}")
