"""python-qpid-proton as a requester and as a server, written as its documentation teaches (`SyncRequestResponse`, the
example of a server); see `tests/interop/foreign.py`. One request more than COUNT has a reply-to that has ended."""

import json
import sys
import threading
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector
from proton.utils import BlockingConnection, SyncRequestResponse

ROLE, ROUTER, ADDRESS, COUNT, _, _, _ = sys.argv[1:]


def tell(event: str, **what: Any) -> None:
    print(json.dumps({"event": event, **what}), flush=True)


def ask() -> None:
    connection = BlockingConnection(f"amqp://{ROUTER}", timeout=30)
    client = SyncRequestResponse(connection, ADDRESS)
    tell("attached")
    answers = [client.call(Message(body=f"request {number}")).body for number in range(int(COUNT))]
    over = connection.create_receiver(None, dynamic=True)
    reply_to = over.remote_source.address
    over.close()  # type: ignore[no-untyped-call]
    connection.create_sender(ADDRESS, name="late").send(Message(body="late", reply_to=reply_to))
    tell("complete")
    sys.stdin.read()
    connection.close()
    tell("done", answers=answers)


class Server(MessagingHandler):
    def __init__(self, injector: EventInjector) -> None:
        super().__init__()
        self.injector = injector
        self.accepted = 0
        self.refused: list[str] = []

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(f"amqp://{ROUTER}", reconnect=False)
        self.receiver = event.container.create_receiver(self.connection, ADDRESS)
        self.sender = event.container.create_sender(self.connection, None)
        event.container.selectable(self.injector)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        sys.stdin.read()
        self.injector.trigger(ApplicationEvent("finish"))

    def on_link_opened(self, event: Any) -> None:
        if event.link == self.receiver:
            tell("attached")

    def on_message(self, event: Any) -> None:
        asked = event.message
        answer = Message(address=asked.reply_to, body=asked.body.upper(), correlation_id=asked.correlation_id)
        self.sender.send(answer)

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1

    def on_rejected(self, event: Any) -> None:
        self.refused.append(event.delivery.remote.condition.name)
        tell("complete")

    def on_finish(self, event: Any) -> None:
        self.injector.close()
        self.connection.close()


if ROLE == "ask":
    ask()
else:
    server = Server(EventInjector())
    Container(server).run()
    tell("done", accepted=server.accepted, refused=server.refused)
