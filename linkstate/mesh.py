"""The routers in contact, and a reliable channel to each of them (protocol 3, layers 1 and 2): the shell's interface.

The shell uses only `Mesh`. The contract between `Mesh` and the shell:

1. The shell keeps one transport for each neighbour of the plan, with two ordered lanes on it, `linkstate` and
   `channel`. It reports when a transport begins (`link_up`) and ends (`link_down`), by the neighbour's name.
2. The shell sets the clock to the time of day (`HybridClock.advance`), and hands over each received body (`receive`).
   After a PeerError, nothing of that body was applied, and the shell closes the transport. The shell also reports that
   any bytes came (`bytes_received`), because a neighbour lives while a long body of it is under way.
3. After every call, the shell performs the actions in `out`, in order. It may join bodies for one neighbour and lane
   into one; they wait in an `Outbox` until the transport has room. After `Full`, payloads that can wait are not sent to
   this router until `Room`.
4. The shell calls `handle_timer` no later than `deadline()`, which may change with any call.
5. `now` never goes backwards.
6. After `Replanned`, the plan has changed, and perhaps the neighbours: the shell closes the transport to a former
   neighbour when it has written the earlier bodies. `replan` changes the plan at this router, and so in the mesh.

Payloads given to `send` arrive as `Received` at each target in contact, in order and once. If this is impossible, the
contact ends, with `ContactLost` at both sides, in any order. Between `ContactMade` and `ContactLost` of a router,
nothing of another contact with it is delivered. This module reads no clock, draws no random numbers, and never blocks.
"""

from collections.abc import Mapping, Sequence

from linkstate.channel import BUDGET
from linkstate.chunks import Buffer
from linkstate.clock import HybridClock
from linkstate.contact import NUMBER_BITS
from linkstate.contacts import Contacts
from linkstate.forwarding import Forwarding
from linkstate.frames import decode_channel
from linkstate.mesh_actions import CHANNEL, LINKSTATE, Action, Loss, Received, Replanned, Transmit
from linkstate.neighbours import Neighbour
from linkstate.paths import Route
from linkstate.plan.plan import Plan
from linkstate.routing import LinkState


class Mesh:
    """The link state, the contacts and the channels of one router."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        plan: Plan,
        clock: HybridClock,
        *,
        hello: float,
        dead: float,
        max_payload: int,
        budget: int = BUDGET,
    ) -> None:
        """`plan`: the plan as this router knows it. `hello`, `dead`: in seconds. `max_payload`: the largest payload, in
        bytes, that this router accepts from another router. `budget`: the limit of the bytes that queue on the way to
        one router."""
        assert 0 < incarnation < 1 << 64 - NUMBER_BITS
        self.name = name
        self.out: list[Action] = []
        self._clock = clock
        self._linkstate = LinkState(name, incarnation, plan, clock, self._transmit_linkstate, hello=hello, dead=dead)
        self._followed = plan
        self._forwarding = Forwarding(
            name, lambda: len(self.plan.listed), clock, lambda: self.routes, self._transmit_channel
        )
        self._contacts = Contacts(
            name,
            incarnation,
            plan,
            self._forwarding,
            lambda action: self.out.append(action),
            hello=hello,
            dead=dead,
            max_payload=max_payload,
            budget=budget,
        )

    @property
    def neighbours(self) -> Mapping[str, Neighbour]:
        """The neighbours in the plan, each with `state`, `since`, `cost` and `up`."""
        return self._linkstate.neighbours

    @property
    def routes(self) -> Mapping[str, Route]:
        """The routers to which there is a path, each with `next_hop`, `cost` and `path`."""
        return self._linkstate.routes

    def cost_to(self, router: str) -> int | None:
        """The sum of the costs on the path to the router; None if there is no path."""
        route = self.routes.get(router)
        return None if route is None else route.cost

    @property
    def contacts(self) -> Mapping[str, int]:
        """The routers in contact and their incarnations."""
        return self._contacts.established

    @property
    def losses(self) -> Mapping[Loss, int]:
        """The number of lost contacts, by cause."""
        return self._contacts.losses

    @property
    def plan(self) -> Plan:
        return self._linkstate.plan

    def replan(self, plan: Plan, now: float) -> None:
        """Merge a changed plan into the present plan. If this changes the present plan, all routers get the result."""
        merged = self.plan.merge(plan)
        if merged != self.plan:
            self._linkstate.follow(merged, now)
            self._follow_reachability(now)

    def link_up(self, neighbour: str, now: float) -> None:
        self._linkstate.link_up(neighbour, now)
        self._follow_reachability(now)

    def link_down(self, neighbour: str, now: float) -> None:
        self._linkstate.link_down(neighbour, now)
        self._follow_reachability(now)

    def receive(self, neighbour: str, lane: str, body: Buffer, now: float) -> None:
        """Take a body that came on this lane from the neighbour."""
        if lane == CHANNEL:
            self.receive_channel(neighbour, body, now)
        else:
            self.receive_linkstate(neighbour, body, now)

    def receive_linkstate(self, neighbour: str, body: Buffer, now: float) -> None:
        self._linkstate.receive(neighbour, body, now)
        self._follow_reachability(now)

    def receive_channel(self, neighbour: str, body: Buffer, now: float) -> None:
        frames = decode_channel(body)
        if not self._linkstate.receive_traffic(neighbour, now):
            return
        for frame in frames:
            self._clock.merge(frame.clock)
            elsewhere = []
            for target in frame.targets:
                if target[0] == self.name:
                    self._contacts.receive(frame, target, now)
                else:
                    elsewhere.append(target)
            if elsewhere:
                self._forwarding.relay(frame, elsewhere)

    def bytes_received(self, neighbour: str, now: float) -> None:
        """Bytes came from the neighbour, perhaps only a part of a body. They show that the neighbour is alive."""
        self._linkstate.receive_traffic(neighbour, now)

    def handle_timer(self, now: float) -> None:
        self._linkstate.handle_timer(now)
        self._follow_reachability(now)
        self._contacts.handle_timer(now)

    def deadline(self) -> float:
        """The latest time for the next call of `handle_timer`."""
        return min(self._linkstate.deadline(), self._contacts.deadline())

    def send(self, targets: Sequence[str], payload: bytes, now: float) -> None:
        """Send the payload to all targets that are in contact. The caller names no target twice."""
        assert len(set(targets)) == len(targets)
        self._contacts.send(targets, payload, now)

    def doubt(self, router: str, reason: str, now: float) -> None:
        """Check a router that owes this one an answer, and declare the contact with it lost if it has sent nothing
        (protocol 6.7).

        The check waits until the router has acknowledged everything that was sent so far. The contact goes on if a
        payload of the router comes before this acknowledgement, or if one that has come before this call still waits to
        be handled.
        """
        if not any(isinstance(action, Received) and action.router == router for action in self.out):
            self._contacts.doubt(router, reason, now)

    def drop_contact(self, router: str, now: float, cause: Loss, reason: str) -> None:
        """Declare the contact with a router lost. A new contact follows if there is a path."""
        self._contacts.drop(router, now, cause, reason)

    def _follow_reachability(self, now: float) -> None:
        changes, self._linkstate.changes = self._linkstate.changes, []
        if self._followed is not self.plan:
            self._followed = self.plan
            self._contacts.follow(self.plan, now)
            self.out.append(Replanned(self.plan))
        for change in changes:
            self._contacts.reachability(change, now)

    def _transmit_linkstate(self, neighbour: str, body: bytes) -> None:
        self.out.append(Transmit(neighbour, LINKSTATE, body))

    def _transmit_channel(self, neighbour: str, body: bytes) -> None:
        self.out.append(Transmit(neighbour, CHANNEL, body))
