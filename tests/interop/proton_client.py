"""python-qpid-proton as its documentation teaches: publisher or subscriber, see `tests/interop/foreign.py`."""

import json
import os
import sys
import threading
import time
from collections import deque
from typing import Any

from proton import Delivery, Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, DurableSubscription, EventInjector, LinkOption, Selector

ROLE, ROUTERS, ADDRESS, COUNT, SIZE, MODE, WHEN = sys.argv[1:]
TOTAL, BYTES = int(COUNT), int(SIZE)
TO = ADDRESS if os.environ.get("ANONYMOUS") else None
URLS = [f"amqp://{router}" for router in ROUTERS.split(",")]
ROAMS = len(URLS) > 1
IN_FLIGHT = 100 if ROAMS else max(10, min(1000, (8 << 20) // BYTES))


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
        self.has_attached = False
        self.link: Link

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(urls=URLS, reconnect=None if ROAMS else False)
        self.attach(event.container)
        event.container.selectable(self.injector)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        for line in sys.stdin:
            self.injector.trigger(ApplicationEvent(line.strip()))
        self.injector.trigger(ApplicationEvent("finish"))

    def on_link_opened(self, event: Any) -> None:
        if not self.has_attached:
            tell("attached")
        self.has_attached = True

    def on_finish(self, event: Any) -> None:
        self.injector.close()
        self.link.close()  # a durable subscriber ends with this
        self.connection.close()

    def attach(self, container: Container) -> None:
        raise NotImplementedError


class Publisher(Client):
    def attach(self, container: Container) -> None:
        self.todo = deque(range(TOTAL))
        self.doubtful: dict[int, None] = {}
        """The messages without an outcome, in order."""
        self.accepted: list[int] = []
        self.times: list[int] = []
        self.refused = 0
        self.link = container.create_sender(self.connection, None if TO else ADDRESS)

    def on_sendable(self, event: Any) -> None:
        while self.link.credit and self.todo and len(self.doubtful) < IN_FLIGHT:
            number = self.todo.popleft()
            body = b"%d " % number
            self.doubtful[number] = None
            self.link.send(
                Message(body.ljust(BYTES, b"."), inferred=True, address=TO, subject=("even", "odd")[number % 2]),
                tag=str(number),
            )

    def on_disconnected(self, event: Any) -> None:
        self.todo.extendleft(reversed(self.doubtful))
        self.doubtful.clear()

    def on_accepted(self, event: Any) -> None:
        number = int(event.delivery.tag)
        if number not in self.doubtful:
            return
        del self.doubtful[number]
        self.accepted.append(number)
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
        self.seen: set[int] = set()
        selector = os.environ.get("SELECTOR")
        options = [SettleMode(), *([Selector(selector)] if selector else [])]
        options += [DurableSubscription()] if ROAMS and ADDRESS.startswith("topic/") else []
        self.link = container.create_receiver(self.connection, ADDRESS, options=options)

    def on_message(self, event: Any) -> None:
        body = bytes(event.message.body)
        number = int(body.split()[0])
        self.numbers.append(number)
        self.damaged += len(body) != BYTES
        if WHEN == "hold":
            self.held.append(event.delivery)
        else:
            self.give(event.delivery)
        if number in self.seen:
            return
        self.seen.add(number)
        if ROAMS and len(self.seen) in (TOTAL // 3, TOTAL * 2 // 3):
            tell("part")
        if len(self.seen) == TOTAL:
            tell("received")
            self.check_complete()

    def give(self, delivery: Delivery) -> None:
        self.times.append(now())
        delivery.update(Delivery.ACCEPTED)
        if MODE == "first":
            delivery.settle()

    def check_complete(self) -> None:
        given = self.settled if MODE == "second" else len(self.times)
        if len(self.seen) == TOTAL and given == len(self.numbers):
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
container = Container(role(EventInjector()))
if ROAMS:
    container.container_id = f"proton-{ROLE}"
container.run()
