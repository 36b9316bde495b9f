"""A delivery of a publisher's: what its user holds to learn the outcome, and what is needed to transfer it again."""

from collections.abc import Callable
from typing import NamedTuple

import trio

from failover.client.outcome import OF_STATE, Outcome
from failover.client.state.comparison import ResumeStep
from router.amqp.format import values
from router.amqp.format.values import NO_STATE


class Handle:
    """One delivery: its key in the mesh (None if the router is not of one), and its outcome to come.

    The attributes from `message` on are the publisher's.
    """

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
        """`check` raises if the publisher has given up."""
        self.tag = tag
        self.key = key
        self.detail = values.OutcomeDetails()  # the outcome as AMQP has it
        self.message = message  # dropped when settled
        self.state = NO_STATE  # as the unsettled map says it: terminal once it is durable that it is
        self.step = ResumeStep.NEW  # how it is transferred on the link that is attached
        self.stored = False  # before that it must not be transferred
        self.transferred = False  # on any link ever: before that it is not in the unsettled map
        self.logged = False
        self._check = check
        self._result: Outcome | None = None
        self._done: trio.Event | None = None

    @property
    def number(self) -> int:
        """Its place among all that this link has ever sent, from 0 on."""
        return int.from_bytes(self.tag, "big")

    async def outcome(self) -> Outcome:
        """What became of it. Raises ConnectionError if the publisher gives up before that is known: it is in doubt."""
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
        """The outcome as far as it is known."""
        return self._result

    def decide(self, state: int) -> None:
        """The outcome is known."""
        self.state = state
        self.tell(OF_STATE.get(state, Outcome.UNKNOWN))

    def tell(self, outcome: Outcome | None) -> None:
        """To whoever waits; None: there will be none."""
        self._result = self._result or outcome
        if self._done is not None:
            self._done.set()


class Answer(NamedTuple):
    """What the router said about a delivery."""

    handle: values.Handle
    delivery: Handle
    state: int
    settled: bool
