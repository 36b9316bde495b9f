"""pyamqp, the AMQP stack within azure-servicebus, as its docstrings teach it: publisher or subscriber, see
`tests/interop/foreign.py`.

The stack dials one router again by itself. If that router stays away, the program goes on at the next one.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from itertools import cycle
from types import SimpleNamespace
from typing import Any

from azure.servicebus._pyamqp import ReceiveClient, SendClient
from azure.servicebus._pyamqp.constants import ReceiverSettleMode
from azure.servicebus._pyamqp.error import AMQPException
from azure.servicebus._pyamqp.message import Message
from azure.servicebus._pyamqp.sasl import SASLAnonymousCredential

ROLE, ROUTERS, ADDRESS, COUNT, SIZE, *_ = sys.argv[1:]
TOTAL, BYTES = int(COUNT), int(SIZE)
LOST = AMQPException, OSError
"""What the stack raises when it gives up."""

input_ended = threading.Event()
routers = cycle(ROUTERS.split(","))


def tell(event: str, **what: Any) -> None:
    print(json.dumps({"event": event, **what}), flush=True)


def await_end_of_input() -> None:
    for _ in sys.stdin:
        pass
    input_ended.set()


def connected(make: Callable[..., Any]) -> Any:
    """A client that is attached at the first router that answers."""
    while True:
        client = make(
            next(routers),
            auth=SimpleNamespace(sasl=SASLAnonymousCredential(), auth_type=None),
            use_tls=False,
            client_name=f"azure-{ROLE}",
            receive_settle_mode=ReceiverSettleMode.First,
        )
        try:
            client.open()
            while not client.client_ready():
                time.sleep(0.01)
        except LOST:
            client.close()
        else:
            return client


def publish() -> None:
    def make(router: str, **options: Any) -> Any:
        return SendClient(router, ADDRESS, **options)

    client = connected(make)
    tell("attached")
    numbers: list[int] = []
    for number in range(TOTAL):
        while True:
            try:
                client.send_message(Message(data=[(b"%d " % number).ljust(BYTES, b".")]), timeout=10)
            except LOST:
                client.close()
                client = connected(make)
            else:
                break
        numbers.append(number)
    tell("complete")
    await_end_of_input()
    client.close()
    tell("done", numbers=numbers, refused=0)


def subscribe() -> None:
    def make(router: str, **options: Any) -> Any:
        return ReceiveClient(router, ADDRESS, link_credit=100, **options)

    threading.Thread(target=await_end_of_input, daemon=True).start()
    client = connected(make)
    tell("attached")
    numbers: list[int] = []
    seen: set[int] = set()
    damaged = 0
    while not input_ended.is_set():
        try:
            client.do_work()
            while not client._received_messages.empty():
                frame, message = client._received_messages.get()
                body = b"".join(message.data)
                number = int(body.split()[0])
                numbers.append(number)
                damaged += len(body) != BYTES
                client.settle_messages(frame[1], frame[2], "accepted")
                if number in seen:
                    continue
                seen.add(number)
                if len(seen) in (TOTAL // 3, TOTAL * 2 // 3):
                    tell("part")
                if len(seen) == TOTAL:
                    tell("received")
                    tell("complete")
        except LOST:
            client.close()
            client = connected(make)
    client.close()
    tell("done", numbers=numbers, damaged=damaged)


{"publish": publish, "subscribe": subscribe}[ROLE]()
