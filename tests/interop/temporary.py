"""Temporary queues that python-qpid-proton makes and drops, by hand for many: `python -m tests.interop.temporary
HOST:PORT COUNT`. Afterwards `oncemesh queue list` shows none of them.
"""

import sys
from typing import Any

from proton import Data, Described, Message, symbol, ulong
from proton.reactor import LinkOption
from proton.utils import BlockingConnection


class OwnQueue(LinkOption):
    """Asks for a queue of the link's own, with this lifetime policy."""

    def __init__(self, policy: int | None = None) -> None:
        self._policy = policy

    def apply(self, link: Any) -> None:
        ours = link.source if link.is_receiver else link.target
        ours.dynamic = True
        ours.capabilities.put_array(False, Data.SYMBOL)
        ours.capabilities.enter()
        ours.capabilities.put_symbol("queue")
        ours.capabilities.exit()
        if self._policy is not None:
            ours.properties.put_dict({symbol("lifetime-policy"): Described(ulong(self._policy), [])})


def make_and_drop(address: str, count: int) -> list[str]:
    """Make so many queues, one after the other, each with a message. Returns their names."""
    connection: Any = BlockingConnection(f"amqp://{address}")
    names: list[str] = []
    try:
        for number in range(count):
            receiver = connection.create_receiver(None, dynamic=True, options=OwnQueue())
            names.append(receiver.link.remote_source.address)
            sender = connection.create_sender(names[-1])
            sender.send(Message(f"{number}"))
            if number % 2:
                assert receiver.receive(10).body == f"{number}"
                receiver.accept()
            sender.close()
            receiver.close()
    finally:
        connection.close()
    return names


if __name__ == "__main__":
    made = make_and_drop(sys.argv[1], int(sys.argv[2]))
    print(f"{len({*made})} queues made and dropped")
