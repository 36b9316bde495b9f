"""Replaces `linkstate.mesh`: a test makes and loses contacts, and carries payloads itself."""

from collections.abc import Callable, Sequence
from math import inf

from linkstate.mesh_actions import Action, ContactLost, ContactMade, Loss, Received


class Contacts:
    """The contacts of one router."""

    def __init__(self, carry: Callable[[str, bytes], None]) -> None:
        """`carry` gets all payloads for other routers, in contact or not."""
        self.out: list[Action] = []
        self.costs: dict[str, int] = {}
        """The cost of the path to each router, as set by the test."""
        self._carry = carry

    # The test calls the methods from here on.

    def made(self, router: str, incarnation: int) -> None:
        self.out.append(ContactMade(router, incarnation))

    def lost(self, router: str, cause: Loss = Loss.SILENT, reason: str = "a test says so") -> None:
        self.out.append(ContactLost(router, cause, reason))

    def received(self, router: str, payload: bytes) -> None:
        self.out.append(Received(router, payload))

    # The node calls the methods from here on.

    def cost_to(self, router: str) -> int | None:
        return self.costs.get(router)

    def send(self, targets: Sequence[str], payload: bytes, now: float) -> None:
        for target in targets:
            self._carry(target, payload)

    def doubt(self, router: str, reason: str, now: float) -> None:
        self.lost(router, Loss.LATE, f"router {router} {reason}")

    def drop_contact(self, router: str, now: float, cause: Loss, reason: str) -> None:
        self.lost(router, cause, reason)

    def handle_timer(self, now: float) -> None:
        """Do nothing: no contact begins or ends by itself."""

    def deadline(self) -> float:
        return inf
