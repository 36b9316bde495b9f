"""A delivery of a publisher. The publisher's user waits here for the outcome. The client keeps the message and the
delivery's state here, as it needs both for its transfers."""

from collections.abc import Callable
from typing import NamedTuple

import trio

from failover.client.outcome import OF_STATE, Outcome
from failover.client.state.comparison import ResumeStep
from router.amqp.format import values
from router.amqp.format.values import NO_STATE


class Handle:
    """One delivery, and its outcome once it is known. `key` names the delivery in the mesh; it is None if the router
    belongs to no mesh. The attributes from `message` on belong to the publisher."""

    __slots__ = (
        "_check",
        "_done",
        "_result",
        "detail",
        "key",
        "logged",
        "message",
        "state",
        "step",
        "stored",
        "tag",
        "transferred",
    )

    def __init__(self, check: Callable[[], None], tag: bytes, key: bytes | None, message: bytes) -> None:
        """`check` raises an error if the publisher has given up."""
        self.tag = tag
        self.key = key
        self.detail = values.OutcomeDetails()  # the details of the outcome, in AMQP's terms
        self.message = message  # the message; dropped when the delivery is settled
        self.state = NO_STATE  # the delivery's state in the unsettled map; an outcome only once it is durable
        self.step = ResumeStep.NEW  # the form in which the client transfers the delivery on the attached link
        self.stored = False  # True once the store has the delivery; only then the client may transfer it
        # Whether the client has transferred the delivery on any link. If not, the unsettled map leaves it out.
        self.transferred = False
        self.logged = False
        self._check = check
        self._result: Outcome | None = None
        self._done: trio.Event | None = None

    @property
    def number(self) -> int:
        """The position of this message among all messages that the link has ever sent, from 0 on."""
        return int.from_bytes(self.tag, "big")

    async def outcome(self) -> Outcome:
        """Wait for the outcome. Raises ConnectionError if the publisher gives up first: the delivery is in doubt."""
        while self._result is None:
            self._check()
            if self._done is None:
                self._done = trio.Event()
            await self._done.wait()
        return self._result

    @property
    def told(self) -> bool:
        return self._result is not None

    @property
    def result(self) -> Outcome | None:
        """The outcome of the delivery. None if it is not known yet."""
        return self._result

    def decide(self, state: int) -> None:
        """Set the state of the delivery, and report the outcome that corresponds to the state."""
        self.state = state
        self.tell(OF_STATE.get(state, Outcome.UNKNOWN))

    def tell(self, outcome: Outcome | None) -> None:
        """Wake the tasks that wait for the outcome. None means that no outcome will come."""
        self._result = self._result or outcome
        if self._done is not None:
            self._done.set()


class Answer(NamedTuple):
    """The router's answer about one delivery."""

    handle: values.Handle
    delivery: Handle
    state: int
    settled: bool
