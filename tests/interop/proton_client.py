"""python-qpid-proton as its documentation teaches: publisher or subscriber, see `tests/interop/foreign.py`."""

import json
import os
import sys
import threading
import time
from typing import Any

from proton import Delivery, Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector, LinkOption, Selector

ROLE, ROUTER, ADDRESS, COUNT, SIZE, MODE, WHEN = sys.argv[1:]
TOTAL, BYTES = int(COUNT), int(SIZE)
TO = ADDRESS if os.environ.get("ANONYMOUS") else None
IN_FLIGHT = max(10, min(1000, (8 << 20) // BYTES))


def tell(event: str, **what: Any) -> None:
    print(json.dumps({"event": event, **what}), flush=True)


def now() -> int:
    return time.monotonic_ns() // 1000


class SettleMode(LinkOption):
    def apply(self, link: Link) -> None:
        link.rcv_settle_mode = Link.RCV_SECOND if MODE == "second" else Link.RCV_FIRST


class Client(MessagingHandler):
    """A client that also listens to its standard input."""

    def __init__(self, injector: EventInjector) -> None:
        super().__init__(auto_accept=False, prefetch=100)
        self.injector = injector

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(f"amqp://{ROUTER}", reconnect=False)
        self.attach(event.container)
        event.container.selectable(self.injector)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        for line in sys.stdin:
            self.injector.trigger(ApplicationEvent(line.strip()))
        self.injector.trigger(ApplicationEvent("finish"))

    def on_link_opened(self, event: Any) -> None:
        tell("attached")

    def on_finish(self, event: Any) -> None:
        self.injector.close()
        self.connection.close()

    def attach(self, container: Container) -> None:
        raise NotImplementedError


class Publisher(Client):
    def attach(self, container: Container) -> None:
        self.sent = 0
        self.accepted: list[int] = []
        self.times: list[int] = []
        self.refused = 0
        self.sender = container.create_sender(self.connection, None if TO else ADDRESS)

    def on_sendable(self, event: Any) -> None:
        while self.sender.credit and self.sent < TOTAL and self.sent - len(self.accepted) < IN_FLIGHT:
            body = b"%d " % self.sent
            self.sender.send(
                Message(body.ljust(BYTES, b"."), inferred=True, address=TO, subject=("even", "odd")[self.sent % 2]),
                tag=str(self.sent),
            )
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.accepted.append(int(event.delivery.tag))
        self.times.append(now())
        if len(self.accepted) == TOTAL:
            tell("complete")
        self.on_sendable(event)

    def on_rejected(self, event: Any) -> None:
        self.refused += 1

    on_released = on_rejected

    def on_connection_closed(self, event: Any) -> None:
        tell("done", numbers=self.accepted, times=self.times, refused=self.refused)


class Subscriber(Client):
    def attach(self, container: Container) -> None:
        self.numbers: list[int] = []
        self.times: list[int] = []
        self.held: list[Delivery] = []
        self.damaged = 0
        self.settled = 0
        selector = os.environ.get("SELECTOR")
        options = [SettleMode(), *([Selector(selector)] if selector else [])]
        container.create_receiver(self.connection, ADDRESS, options=options)

    def on_message(self, event: Any) -> None:
        body = bytes(event.message.body)
        self.numbers.append(int(body.split()[0]))
        self.damaged += len(body) != BYTES
        if WHEN == "hold":
            self.held.append(event.delivery)
        else:
            self.give(event.delivery)
        if len(self.numbers) == TOTAL:
            tell("received")
            self.check_complete()

    def give(self, delivery: Delivery) -> None:
        self.times.append(now())
        delivery.update(Delivery.ACCEPTED)
        if MODE == "first":
            delivery.settle()

    def check_complete(self) -> None:
        if len(self.numbers) == TOTAL == (self.settled if MODE == "second" else len(self.times)):
            tell("complete")

    def on_accept(self, event: Any) -> None:
        for delivery in self.held:
            self.give(delivery)
        self.check_complete()

    def on_settled(self, event: Any) -> None:
        self.settled += 1
        event.delivery.settle()
        self.check_complete()

    def on_connection_closed(self, event: Any) -> None:
        tell("done", numbers=self.numbers, times=self.times, damaged=self.damaged, settled=self.settled)


role = Publisher if ROLE == "publish" else Subscriber
Container(role(EventInjector())).run()
