"""The wills that one router knows, and the decision to publish one (protocol 15).

    client ── keep ─▶ its router ── KEEP ─▶ all routers in contact
              goodbye, or back in time ──── OVER ─▶ all routers forget the will
              gone ── delay ─▶ its router publishes ── OVER ─▶
              its router has ended ── delay ─▶ another router asks all, and publishes ── OVER ─▶

The router of the client decides as long as it lives. If its process is certainly gone, the router with the lowest name
of those in contact that have the will takes its place. A router out of contact may still have the client, so its wills
wait.
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
"""Bytes of all wills of one router's clients."""
MOST_OVER: Final = 10_000
"""Wills that are over, and that a router remembers: another router may not have heard that yet."""
AGAIN_S: Final = 1.0
"""Seconds until a router asks again about a will that another router is to publish."""


class WillMesh(Protocol):
    """Sends payloads to other routers: `topic.node`."""

    topic: Topic

    def send_about_wills(self, routers: Collection[str], payload: bytes) -> None:
        """Send to these routers, in order with all other payloads."""


class WillNode(WillMesh, EndNode, Protocol):
    """The node that publishes wills."""


class WillHolder(Protocol):
    """The connection of the client of a will."""

    def taken_over(self) -> None:
        """The client has connected at another router."""


@attrs.define(slots=True, eq=False)
class _Kept:
    will: Will
    holder: WillHolder | None = None
    """The client's connection, if it is at this router."""
    is_due: bool = False
    """Whether the time until this router publishes the will, or asks whether it may, runs."""
    is_urgent: bool = False
    """The client's session is over, or the will has no delay: it does not wait for the delay."""
    asked: set[str] | None = None
    """The routers whose answers are awaited; None if this router has not asked."""
    leads: bool = False
    """Whether no answer names a router that publishes the will."""
    publisher: WillPublisher | None = None


class Wills:
    def __init__(self, node: WillNode) -> None:
        self._node = node
        self._topic = node.topic
        self._directory = node.topic.directory
        self._kept: dict[WillId, _Kept] = {}
        self._of: dict[tuple[str, str], dict[WillId, None]] = {}
        """Keyed by client and user."""
        self._bytes: dict[str, int] = {}
        """Bytes of the wills of each router whose clients have had wills. Another router may still have a will that is
        over here."""
        self._over: dict[WillId, None] = {}
        """The last wills that are over, oldest first."""
        self._due: Deadlines[_Kept] = Deadlines()
        """When this router publishes a will, or asks whether it may."""
        self._lost: dict[str, tuple[int, float]] = {}
        """For each router out of contact that has wills: its incarnation, and the time of the loss."""
        self._count = 0

    # the clients of this router

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
        """The client has said goodbye: nobody publishes the will."""
        if (kept := self._kept.get(will.id)) is not None and kept.publisher is None:
            self._end(kept)

    def left(self, will: Will, delay: float, now: float) -> None:
        """The client's connection is over without a goodbye. `delay`: seconds until the will is published, unless the
        client comes back to its session."""
        if (kept := self._kept.get(will.id)) is not None:
            kept.holder = None
            self._wait(kept, now + delay, now)

    def is_known(self, client: str, user: str) -> bool:
        """Whether a router has a will of this client."""
        return (client, user) in self._of

    def connected(self, client: str, user: str, but: Will | None, now: float, *, continues: bool) -> None:
        """The client has certainly connected here. Its earlier wills are published at once, or not at all if its
        session `continues` before their delay is over (MQTT 5, 3.1.3.2.2). `but`: the will of this connection."""
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

    # time

    def deadline(self) -> float:
        return self._due.earliest()

    def handle_timer(self, now: float) -> None:
        for router, (incarnation, since) in list(self._lost.items()):
            if now >= since + self._topic.settings.forget:
                self._ends(router, incarnation, now)
        for kept in self._due.due(now):
            self._look(kept, now)

    def _wait(self, kept: _Kept, due: float, now: float) -> None:
        """Look at the will when it is `due`, unless this router publishes it, or asks about it, already."""
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
        """All routers have answered: publish the will, or look again later."""
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

    # what the publisher of a will says

    def may_publish(self, will: Will) -> bool:
        return will.id in self._kept

    def published(self, will: Will, refused: str) -> None:
        if refused:
            self._note(f"the will of client {will.client!r} to {will.address} was not accepted: {refused}")
        if (kept := self._kept.get(will.id)) is not None:
            kept.publisher = None
            self._end(kept)

    def taken(self, will: Will) -> None:
        """Another router publishes the will. If it dies before it says that the will is over, this router asks
        again."""
        if (kept := self._kept.get(will.id)) is not None:
            kept.publisher, now = None, self._node.now()
            self._wait(kept, now + AGAIN_S, now)

    # other routers

    def contact(self, router: str, incarnation: int, now: float) -> None:
        """A contact begins. The two routers tell each other the wills of their clients."""
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
        """The host of a router out of contact refuses connections: its process is gone. Tell all contacts."""
        if (lost := self._lost.get(router)) is not None:
            self._tell(write_message(WillWord.ENDED, router, lost[0]))
            self._ends(router, lost[0], now)

    def follow(self, routers: Collection[str], now: float) -> None:
        """The plan lists these routers. The clients of a router that was removed do not come back to it."""
        for router, (incarnation, _) in list(self._lost.items()):
            if router not in routers:
                self._ends(router, incarnation, now)

    def _ends(self, router: str, incarnation: int, now: float) -> None:
        """The process of this incarnation of a router is gone for good, or given up."""
        if self._lost.get(router, (inf, 0))[0] <= incarnation:
            del self._lost[router]
        if router not in self._bytes:
            return
        for kept in list(self._kept.values()):
            if kept.will.router == router and kept.will.incarnation <= incarnation:
                self._has_ended(kept, now)

    def _has_ended(self, kept: _Kept, now: float) -> None:
        """The router of this will is gone. The delay begins now, because nobody knows when the client has left."""
        if not (kept.is_due or self._is_mine(kept.will)):
            self._wait(kept, now + (0 if kept.is_urgent else kept.will.delay), now)

    def _is_elsewhere(self, kept: _Kept, now: float, *, continues: bool) -> None:
        """The client has connected at another router, or here once more. If it has left the router of the will in time,
        that router ends the will."""
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
                if holder is not None:  # the client has come to a router that was out of contact with this one
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
            # The client's router lives, and decides: the delay has not begun.
            kept.asked, kept.is_due = None, False
            return None
        precedes = state is WillState.KEPT and router < self._directory.router
        kept.leads = kept.leads and not (precedes or state is WillState.PUBLISHING)
        kept.asked.discard(router)
        self._decide(kept, now)

    # the wills

    def _is_mine(self, will: Will) -> bool:
        return will.owner == (self._directory.router, self._directory.incarnation)

    def _add(self, will: Will) -> _Kept:
        kept = self._kept[will.id] = _Kept(will)
        self._of.setdefault((will.client, will.user), {})[will.id] = None
        self._bytes[will.router] = self._bytes.get(will.router, 0) + will.size
        return kept

    def _end(self, kept: _Kept, *, tells: bool = True) -> None:
        """The will is over. `tells`: tell all routers in contact."""
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
