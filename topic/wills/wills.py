"""The wills that one router knows, and the decision to publish one (protocol 15).

    client ── keep ─▶ its router ── KEEP ─▶ all routers in contact
              goodbye, or back in time ──── OVER ─▶ all routers forget the will
              gone ── delay ─▶ its router publishes ── OVER ─▶
              its router has ended ── delay ─▶ another router asks all, and publishes ── OVER ─▶

As long as the router of the client lives, this router decides about the will. If the process of this router is
certainly gone, another router decides. Of all routers in contact that have the will, it is the one with the lowest
name. A router that is only out of contact may still have the client, so its clients' wills wait, for at most
`Settings.forget` seconds.
"""

from collections.abc import Collection
from math import inf
from typing import Final, Protocol

import attrs

from topic.actions import Action, Note
from topic.core import Topic
from topic.ends.end import EndNode
from topic.errors import BreachError
from topic.termini.deadlines import Deadlines
from topic.wills.publisher import WillPublisher
from topic.wills.will import Will, WillId, WillState, WillWord, keep, read_message, write_message

MOST_BYTES: Final = 16 << 20
"""The highest number of bytes of all wills of one router's clients."""
MOST_OVER: Final = 10_000
"""The highest number of wills that a router remembers after they are over. It remembers them because another router may
not know yet that they are over."""
AGAIN_S: Final = 1.0
"""The seconds after which this router asks the others again about a will that another router has to publish."""


class WillMesh(Protocol):
    """Sends payloads to other routers; `topic.node` implements it."""

    topic: Topic

    def send_about_wills(self, routers: Collection[str], payload: bytes) -> None:
        """Send the payload to these routers. It keeps its place in the order of all payloads to them."""


class WillNode(WillMesh, EndNode, Protocol):
    """The node that publishes wills."""


class WillHolder(Protocol):
    """The connection of the client of a will."""

    def taken_over(self) -> None:
        """Called when the client has a later connection, at this router or at another one."""


@attrs.define(slots=True, eq=False)
class _Kept:
    will: Will
    holder: WillHolder | None = None
    """The client's connection, if it is at this router; otherwise None."""
    is_due: bool = False
    """Whether this router has begun to wait for the time at which it publishes the will, or asks whether it may publish
    it."""
    is_urgent: bool = False
    """Whether this router publishes the will without its delay, because the client's session is over or the will has no
    delay."""
    asked: set[str] | None = None
    """The routers whose answers this router awaits; None if this router has not asked."""
    leads: bool = False
    """Whether this router may publish the will, by the answers so far: no router publishes it, and no router with a
    lower name has it."""
    publisher: WillPublisher | None = None


class Wills:
    def __init__(self, node: WillNode) -> None:
        self._node = node
        self._topic = node.topic
        self._directory = node.topic.directory
        self._kept: dict[WillId, _Kept] = {}
        self._of: dict[tuple[str, str], dict[WillId, None]] = {}
        """The wills of each client, by the names of the client and its user."""
        self._bytes: dict[str, int] = {}
        """Maps each router whose clients have had wills to the bytes of its wills that this router knows. A router
        without such wills stays listed, because other routers may still have wills of its clients."""
        self._over: dict[WillId, None] = {}
        """The wills that were over last, at most `MOST_OVER` of them, oldest first."""
        self._due: Deadlines[_Kept] = Deadlines()
        """The deadlines of the waiting wills. At its deadline, this router publishes a will, or asks whether it may
        publish the will."""
        self._lost: dict[str, tuple[int, float]] = {}
        """The routers out of contact whose clients have had wills. Maps each one to its incarnation, and to the time
        when the contact was lost."""
        self._count = 0

    # The methods from here on are about the clients of this router.

    @property
    def count(self) -> int:
        """The number of wills that this router knows."""
        return len(self._kept)

    def has_room(self, size: int) -> bool:
        """Whether this router takes another will of `size` bytes."""
        return self._bytes.get(self._directory.router, 0) + size <= MOST_BYTES

    def keep(
        self, client: str, user: str, address: str, message: bytes, delay: int, holder: WillHolder, *, presettled: bool,
        expiry: int,
    ) -> Will:  # fmt: skip
        """Keep the will of a client that has connected here. The other arguments are fields of `Will`."""
        self._count += 1
        directory = self._directory
        will = Will(
            directory.router, directory.incarnation, self._count, client, user, address, message, delay, presettled,
            expiry,
        )  # fmt: skip
        self._add(will).holder = holder
        self._tell(keep(will))
        return will

    def withdraw(self, will: Will) -> None:
        """Handle the goodbye of a client: no router publishes its will."""
        if (kept := self._kept.get(will.id)) is not None and kept.publisher is None:
            self._end(kept)

    def left(self, will: Will, delay: float, now: float) -> None:
        """Handle a client whose connection has ended without a goodbye. This router publishes the will after `delay`
        seconds, unless the client comes back to its session before that."""
        if (kept := self._kept.get(will.id)) is not None:
            kept.holder = None
            self._wait(kept, now + delay, now)

    def is_known(self, client: str, user: str) -> bool:
        """Whether a router has a will of this client."""
        return (client, user) in self._of

    def connected(self, client: str, user: str, but: Will | None, now: float, *, continues: bool) -> None:
        """Handle a client that has certainly connected here. If its session `continues` before the delay of an earlier
        will is over, no router publishes this will. All other earlier wills are published at once (MQTT 5, 3.1.3.2.2).
        `but`: the will of the new connection, which stays."""
        for id_ in list(self._of.get((client, user), ())):
            if but is not None and id_ == but.id:
                continue
            kept = self._kept[id_]
            if self._is_mine(kept.will) or kept.will.owner in self._directory.contacts.items():
                self._tell(write_message(WillWord.ELSEWHERE, *id_, continues))
                self._is_elsewhere(kept, now, continues=continues)
            elif kept.will.delay and continues and kept.publisher is None:
                self._end(kept)
            else:
                self._tell(write_message(WillWord.ELSEWHERE, *id_, continues))
                self._is_elsewhere(kept, now, continues=False)

    # The methods from here on are about time.

    def deadline(self) -> float:
        return self._due.earliest()

    def handle_timer(self, now: float) -> None:
        for router, (incarnation, since) in list(self._lost.items()):
            if now >= since + self._topic.settings.forget:
                self._ends(router, incarnation, now)
        for kept in self._due.due(now):
            self._look(kept, now)

    def _wait(self, kept: _Kept, due: float, now: float) -> None:
        """Call `_look` for the will at the time `due`. Do nothing if this router already publishes the will, or asks
        about it."""
        if kept.publisher is None and kept.asked is None:
            kept.is_due = True
            self._due.set(kept, due)
            if now >= due:
                self._look(kept, now)

    def _look(self, kept: _Kept, now: float) -> None:
        """Publish the will, or ask whether this router may."""
        self._due.discard(kept)
        if self._is_mine(kept.will):
            self._publish(kept, again=False)
        else:
            kept.asked, kept.leads = set(self._directory.contacts), True
            self._tell(write_message(WillWord.ASK, *kept.will.id))
            self._decide(kept, now)

    def _decide(self, kept: _Kept, now: float) -> None:
        """If all routers have answered, publish the will, or ask again after `AGAIN_S`."""
        if kept.asked is None or kept.asked:
            return
        kept.asked = None
        if kept.leads:
            will = kept.will
            self._note(f"router {will.router} has ended: the will of its client {will.client!r} is published from here")
            self._publish(kept, again=True)
        else:
            self._wait(kept, now + AGAIN_S, now)

    def _publish(self, kept: _Kept, *, again: bool) -> None:
        timeout = max(1, int(self._topic.settings.terminus))
        kept.publisher = WillPublisher(self._node, kept.will, timeout, self)
        kept.publisher.come(again=again)

    # The publisher of a will calls the methods from here on.

    def may_publish(self, will: Will) -> bool:
        return will.id in self._kept

    def published(self, will: Will, refused: str) -> None:
        if refused:
            self._note(f"the will of client {will.client!r} to {will.address} was not accepted: {refused}")
        if (kept := self._kept.get(will.id)) is not None:
            kept.publisher = None
            self._end(kept)

    def taken(self, will: Will) -> None:
        """Handle a will that another router publishes. That router may die before it announces that the will is over,
        so this router asks about the will again after `AGAIN_S`."""
        if (kept := self._kept.get(will.id)) is not None:
            kept.publisher, now = None, self._node.now()
            self._wait(kept, now + AGAIN_S, now)

    # The methods from here on are about other routers.

    def contact(self, router: str, incarnation: int, now: float) -> None:
        """Begin a contact: send the router the wills of this router's clients. The other router does the same."""
        self._lost.pop(router, None)
        self._ends(router, incarnation - 1, now)
        for kept in self._kept.values():
            if self._is_mine(kept.will):
                self._node.send_about_wills((router,), keep(kept.will))

    def contact_lost(self, router: str, incarnation: int, now: float) -> None:
        if router in self._bytes:
            self._lost[router] = incarnation, now
        for kept in [kept for kept in self._kept.values() if kept.asked is not None]:
            if kept.asked is not None:
                kept.asked.discard(router)
                self._decide(kept, now)

    def waits_for(self, router: str) -> bool:
        """Whether clients of this router, which is out of contact, have had wills."""
        return router in self._lost

    def refused(self, router: str, now: float) -> None:
        """Handle a router out of contact whose host refuses connections: its process is gone. Tell all contacts."""
        if (lost := self._lost.get(router)) is not None:
            self._tell(write_message(WillWord.ENDED, router, lost[0]))
            self._ends(router, lost[0], now)

    def follow(self, routers: Collection[str], now: float) -> None:
        """Follow a changed plan, which lists these routers: give up the other routers that are out of contact. The
        clients of a removed router do not come back to it."""
        for router, (incarnation, _) in list(self._lost.items()):
            if router not in routers:
                self._ends(router, incarnation, now)

    def _ends(self, router: str, incarnation: int, now: float) -> None:
        """Act on the end of this incarnation of a router, and of all its earlier ones. The router's process is gone, or
        the plan no longer lists the router, or the router has been out of contact for `Settings.forget` seconds."""
        if self._lost.get(router, (inf, 0))[0] <= incarnation:
            del self._lost[router]
        if router not in self._bytes:
            return
        for kept in list(self._kept.values()):
            if kept.will.router == router and kept.will.incarnation <= incarnation:
                self._has_ended(kept, now)

    def _has_ended(self, kept: _Kept, now: float) -> None:
        """Begin the delay of a will whose router is gone. The delay begins only now, because no router knows when the
        client has left."""
        if not (kept.is_due or self._is_mine(kept.will)):
            self._wait(kept, now + (0 if kept.is_urgent else kept.will.delay), now)

    def _is_elsewhere(self, kept: _Kept, now: float, *, continues: bool) -> None:
        """Handle a client that has connected at another router, or here again. If the client comes back to its session
        before the delay is over, the router of the will ends the will."""
        if kept.publisher is not None:
            return
        holder, kept.holder = kept.holder, None
        if not (kept.will.delay and continues):
            kept.is_urgent = True
            if kept.is_due or self._is_mine(kept.will):
                self._wait(kept, now, now)
        elif self._is_mine(kept.will):
            self._end(kept)
        if holder is not None:
            holder.taken_over()

    def receive(self, router: str, payload: bytes, now: float) -> None:
        """Take a payload about wills from a router in contact. Raises BreachError if it breaks the protocol."""
        word, fields = read_message(payload)
        if word is WillWord.KEEP:
            return self._on_keep(router, Will(*fields), now)
        if word is WillWord.ENDED:
            return self._ends(fields[0], fields[1], now)
        id_: WillId = fields[0], fields[1], fields[2]
        kept = self._kept.get(id_)
        if word is WillWord.OVER:
            self._remember(id_)
            if kept is not None:
                holder = kept.holder
                self._end(kept, tells=False)
                if holder is not None:  # the client is also at a router that was out of contact
                    holder.taken_over()
        elif word is WillWord.ELSEWHERE:
            if kept is not None:
                self._is_elsewhere(kept, now, continues=fields[3])
        elif word is WillWord.ASK:
            self._on_ask(router, id_, now)
        elif kept is not None and kept.asked is not None:
            self._on_answer(kept, router, WillState(fields[3]), now)

    def _on_keep(self, router: str, will: Will, now: float) -> None:
        if will.owner != (router, self._directory.contacts[router]):
            raise BreachError(f"router {router} told of a will of router {will.router}")
        if self._bytes.get(router, 0) + will.size > 2 * MOST_BYTES:
            raise BreachError(f"router {router} told of too many wills")
        if will.id in self._over:
            self._node.send_about_wills((router,), write_message(WillWord.OVER, *will.id))
        elif will.id not in self._kept:
            self._add(will)

    def _on_ask(self, router: str, id_: WillId, now: float) -> None:
        kept, state = self._kept.get(id_), WillState.OVER if id_ in self._over else WillState.UNKNOWN
        if kept is not None:
            is_published = kept.publisher is not None or self._is_mine(kept.will)
            state = WillState.PUBLISHING if is_published else WillState.KEPT
        self._node.send_about_wills((router,), write_message(WillWord.ANSWER, *id_, int(state)))
        if kept is not None:
            self._has_ended(kept, now)

    def _on_answer(self, kept: _Kept, router: str, state: WillState, now: float) -> None:
        assert kept.asked is not None
        if state is WillState.OVER:
            return self._end(kept, tells=False)
        if kept.will.owner in self._directory.contacts.items() and router == kept.will.router:
            # The client's router lives, so it decides about the will. The delay has not begun.
            kept.asked, kept.is_due = None, False
            return None
        precedes = state is WillState.KEPT and router < self._directory.router
        kept.leads = kept.leads and not (precedes or state is WillState.PUBLISHING)
        kept.asked.discard(router)
        self._decide(kept, now)

    # The methods from here on add and remove wills.

    def _is_mine(self, will: Will) -> bool:
        return will.owner == (self._directory.router, self._directory.incarnation)

    def _add(self, will: Will) -> _Kept:
        kept = self._kept[will.id] = _Kept(will)
        self._of.setdefault((will.client, will.user), {})[will.id] = None
        self._bytes[will.router] = self._bytes.get(will.router, 0) + will.size
        return kept

    def _end(self, kept: _Kept, *, tells: bool = True) -> None:
        """Forget the will, because it is over. `tells`: whether to announce this to all routers in contact."""
        will, publisher = kept.will, kept.publisher
        del self._kept[will.id]
        mine = self._of[will.client, will.user]
        del mine[will.id]
        if not mine:
            del self._of[will.client, will.user]
        self._bytes[will.router] -= will.size
        self._due.discard(kept)
        self._remember(will.id)
        if tells:
            self._tell(write_message(WillWord.OVER, *will.id))
        if publisher is not None:
            publisher.give_up()

    def _remember(self, id_: WillId) -> None:
        self._over.pop(id_, None)
        self._over[id_] = None
        if len(self._over) > MOST_OVER:
            del self._over[next(iter(self._over))]

    def _tell(self, payload: bytes) -> None:
        self._node.send_about_wills(tuple(self._directory.contacts), payload)

    def _note(self, text: str) -> None:
        note: Action = Note(text)
        self._topic.outlet.actions.append(note)
