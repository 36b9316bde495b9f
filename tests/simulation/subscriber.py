"""A subscriber whose application takes its time, sometimes does not accept, and remembers what it did."""

from functools import partial
from random import Random
from typing import Any

from tests.simulation.client import Client
from tests.simulation.filters import Colours, draw_filter
from tests.simulation.link import Link
from tests.simulation.queue_annotations import annotation
from tests.simulation.subscriber_link import SubscriberLink
from tests.simulation.transactions import DealingClient
from topic.delivery.outcomes import DeliveryOutcome
from topic.identity import Epoch

FINAL = (DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED)
"""Outcomes that end a delivery wherever they are sent."""


CALM_THINK = 2.0
"""Longest time, in seconds, that the application takes for a message once the faults have stopped."""


class SubscriberClient(Client):
    receives = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.link: SubscriberLink | None = None
        self.applications = self.judge.applications_at(self.identity.address)
        self.refuses_for_good = True
        """Whether the subscriber may refuse a message for good."""
        self.adds: Random | None = None
        """The random numbers of a consumer of a queue that may add annotations when it modifies a message. None for
        other subscribers."""
        self.dealing: DealingClient | None = None
        """The subscriber's transactions. None for a client without transactions."""
        self._added = 0
        """How often the subscriber has added annotations."""
        self.first = self.random.random() < self.knobs.first
        self.settles = self.first or bool(self.knobs.hasty and self.random.random() < self.knobs.hasty)
        """Whether the subscriber settles a delivery with its outcome, also in settle mode second."""
        self.sends_settled = self.random.random() < self.knobs.settled
        self.tops_up = self.random.choice(("on delivery", "on acceptance", "on settlement"))
        self.prefetch = self.random.choice((1, 2, 5, 100))
        self.unsettled: dict[bytes, int] = {}
        """The subscriber's map: key -> 0, or the outcome that it sent."""
        self.texts: dict[bytes, bytes] = {}
        """Key -> message, for all keys in the map."""
        self.todo: dict[bytes, bytes] = {}
        """Messages that the application is processing: key -> message."""
        self.handles: dict[int, bytes] = {}
        """Handle -> key, for deliveries that were transferred on this link and are not settled."""
        self.said: dict[bytes, int] | None = None
        """The map of the attach that is under way, or was answered last."""
        self._named: set[bytes] = set()
        """Keys in both maps, if one of them was incomplete."""
        self._owed: Link | None = None
        """The link on which the subscriber has not answered an echo yet."""
        self._cut = False
        """Whether the router's answer had no room for its whole map."""
        self._afresh = True
        self._limit = 0
        self.wants: Colours | None = None
        """The filter of the subscriber's link."""
        self.no_local = False

    def has(self, key: bytes) -> bool:
        """Whether the key is in its map, or about to be: a transfer of it may outlive its router."""
        return key in self.unsettled or (self.link is not None and self.link.is_bringing(key))

    def open(self, router: Any) -> None:
        self.ask_otherwise()
        self._perhaps_filter_otherwise()
        link = self.link = SubscriberLink(router, self, len(self.opened) + 1, self.first, self.sends_settled)
        self.said = None if self._afresh or self.plain else self.map_to_send(self.unsettled)
        self.partial = self.partial and self.said is not None
        incomplete = ", incomplete" if self.partial else ""
        self.note(self.name, f"attaches at {router.name} with {_short(self.said)}{incomplete}")
        self.judge.attaching(self.name)
        (self.perhaps_late_null if self.said is None else self.perhaps_late)(link)
        link.to_router(link.attach, self.seen, self.said, not self.partial)
        self._limit = 0
        self._grant(self.random.randint(0, self.prefetch))

    def ask_otherwise(self) -> None:
        super().ask_otherwise()
        if self.changes_modes:
            self.settles = self.first

    def _perhaps_filter_otherwise(self) -> None:
        often = self.knobs.filters if self.opened else 1.0
        if self.knobs.filters and not self.calm and self.random.random() < often:
            self.wants = draw_filter(self.random)
            self.no_local = self.knobs.shared and self.random.random() < 0.5
            self.note(self.name, f"wants {self.wants}{', nothing of its own' if self.no_local else ''}")

    def begin_afresh(self) -> None:
        self.applications.amnesia(self.name, self.texts.values())
        self.texts.clear()
        self.unsettled.clear()
        self.todo.clear()
        self._afresh = True

    def left(self) -> None:
        self.handles.clear()
        self.applications.left(self.name)
        if self.dealing is not None:
            self.dealing.left()

    def _grant(self, count: int) -> None:
        link = self.link
        if link is not None and count:
            self._limit += count
            link.to_router(link.flow, self._limit)
            if self.knobs.drains and not self.calm and self.random.random() < self.knobs.drains:
                self._drain_or_take_back(link)

    def _drain_or_take_back(self, link: SubscriberLink) -> None:
        if self.random.random() < 0.5:
            self.note(self.name, "drains its link")
            link.to_router(link.drain, self._limit)
            return
        count = self.random.randint(1, self.prefetch)
        self.note(self.name, f"takes back {count} of its credit")
        self._limit -= count
        link.to_router(link.flow, self._limit)
        self.later(partial(self._grant_again, link, count))

    def _grant_again(self, link: Link, count: int) -> None:
        if link is self.link:
            self._grant(count)

    def drained(self, link: Link, unused: int) -> None:
        """The router has used up the rest of the credit."""
        if link is self.link:
            self._limit -= unused
            self.later(partial(self._grant_again, link, unused))

    # answers of the router

    def attached(self, link: Link, epoch: Epoch, ours: dict[bytes, int] | None, complete: bool) -> None:
        if link is not self.link:
            return
        self.judge.check(not self.answered, "5 one answer: an attach is answered once")
        self.answered = True
        self.epoch = epoch
        self._afresh = False
        for key in self.said or ():
            if ours is None or (complete and key not in ours):
                self._forget(key, "left out of the router's map")
        if self.dealing is not None:
            self.dealing.attached()
        self._grant(max(self.prefetch - self._limit, 0))
        self._cut = not complete
        if self.partial or not complete:
            self._named = set(ours or ())
            self.later(partial(self._perhaps_attach_again, link))

    def _perhaps_attach_again(self, link: Link) -> None:
        """One of the maps was incomplete. If it was the router's map, wait, once the faults are over, until the
        deliveries in it are done: then there is room for more."""
        if self.calm and not self.partial and link is self.link and not self._named.isdisjoint(self.unsettled):
            self.later(partial(self._perhaps_attach_again, link))
        else:
            self.attach_again(link)

    def delivered(
        self, link: Link, handle: int, key: bytes, message: bytes, settled: bool, attempts: int, resumed: bool
    ) -> None:
        if link is not self.link:
            return
        named = not self.partial or key in (self.said or ())
        self.judge.check(named, f"7 incomplete: {message.decode()} comes to {self.name}, whose map did not name it")
        self.judge.check(self.answered, "6 joined: nothing is delivered before the attach is answered")
        as_named = resumed == (key in self.unsettled) or (not resumed and self._is_sent_anew(key, message))
        self.judge.check(as_named, f"1 resume: {message.decode()} comes to {self.name}, resume {resumed}")
        stated = resumed and (self.said or {}).get(key) in FINAL
        self.judge.check(not stated, f"1 resume: {message.decode()} comes to {self.name}, whose map had its outcome")
        if self.tops_up == "on delivery" or settled:
            self._grant(1)
        if not settled:
            self.handles[handle] = key
        if self.unsettled.get(key) in FINAL:
            self._state(
                link, handle, message, DeliveryOutcome(self.unsettled[key]), False
            )  # processed since the map was made
        elif key not in self.todo:
            self.applications.seen(self.name, link.router.name, message, key, attempts, resumed)
            if not settled:
                self.unsettled[key] = 0
                self.texts[key] = message
                self.todo[key] = message
                longest = min(self.knobs.think, CALM_THINK) if self.calm else self.knobs.think
                self.schedule.after(self.random.random() * longest, self.process, key, message)

    def _is_sent_anew(self, key: bytes, message: bytes) -> bool:
        """Limit: the router's answer had no room to say that the delivery is settled. Its publisher, which lets its
        router settle, does not know that, and sends it again (protocol 10, on tags that are used again). Or a plain
        publisher's edge gave it up with a contact, and its home still has it."""
        return self._cut and key not in self._named and self.applications.is_settled_for(message)

    def restated(self, link: Link, handle: int, key: bytes, state: int, settled: bool) -> None:
        """A resumed transfer without payload: both ends know the outcome, or the publisher has settled meanwhile."""
        if link is not self.link:
            return
        self.judge.check(key in self.unsettled, "1 resume: only what our map named is resumed")
        if self.tops_up != "on settlement" or settled:
            self._grant(1)
        if settled:
            self._forget(key, "resumed as settled")
        else:
            self.applications.restated(self.name, self.texts[key], self.unsettled[key], state)
            self.unsettled[key] = state  # perhaps an outcome from before it lost its memory
            self.todo.pop(key, None)
            self.handles[handle] = key

    def settled(self, link: Link, handles: list[int], again: bool) -> None:
        if link is not self.link:
            return
        for handle in handles:
            key = self.handles.pop(handle, None)
            if key is not None:
                self._forget(key, "settled", given_back=again)
                if self.tops_up == "on settlement":
                    self._grant(1)

    def _forget(self, key: bytes, how: str, *, given_back: bool = False) -> None:
        self.todo.pop(key, None)
        state = self.unsettled.pop(key, None)
        if state is not None:
            text = self.texts.pop(key)
            if not given_back:
                self.applications.forgotten(self, text, state, how)

    def echo(self, link: Link) -> None:
        if link is not self.link:
            return
        if self.knobs.reuse and not self.calm:
            self._owed = link
        else:
            link.to_router(self.link.echoed)

    def answer_echo(self) -> None:
        """Answer the echo that it has not answered on its link, if there is one."""
        link, self._owed = self._owed, None
        if link is not None:
            self.echo(link)

    # actions of the subscriber

    def process(self, key: bytes, message: bytes) -> None:
        """The application has processed the message, attached or not, unless it was told meanwhile to forget it."""
        if self.todo.get(key) is not message:
            return
        del self.todo[key]
        if self.dealing is not None and self.dealing.takes(key, message):
            return
        outcome, final = self._verdict()
        self.unsettled[key] = outcome
        self.note(self.name, f"{outcome.name} {message.decode()}{' for good' if final else ''}")
        self.applications.outcome(self.name, message, outcome, final)
        handle = next((handle for handle, at in self.handles.items() if at == key), None)
        if self.link is not None and handle is not None:
            self._state(self.link, handle, message, outcome, final)
        if self.tops_up == "on acceptance" or (self.tops_up == "on settlement" and self.settles):
            self._grant(1)

    def _state(self, link: Link, handle: int, message: bytes, outcome: DeliveryOutcome, final: bool) -> None:
        assert isinstance(link, SubscriberLink)
        if self.settles:
            key = self.handles.pop(handle)
            del self.unsettled[key], self.texts[key]
            self.applications.settles(self.name, message)
        failed = outcome is DeliveryOutcome.MODIFIED and handle % 2 == 0
        link.to_router(link.outcome, handle, outcome, final, self.settles, failed, self._annotations(outcome))

    def _annotations(self, outcome: DeliveryOutcome) -> bytes:
        """The annotations that the subscriber adds to the message. It never adds the same ones twice."""
        dice, is_modified = self.adds, outcome is DeliveryOutcome.MODIFIED
        if dice is None or not is_modified or dice.random() >= self.knobs.annotated:
            return b""
        self._added += 1
        return annotation(self.name, self._added)

    def _verdict(self) -> tuple[DeliveryOutcome, bool]:
        if self.calm or self.random.random() >= self.knobs.refusing:
            return DeliveryOutcome.ACCEPTED, False
        outcome = self.random.choice((DeliveryOutcome.REJECTED, DeliveryOutcome.RELEASED, DeliveryOutcome.MODIFIED))
        return outcome, outcome is DeliveryOutcome.MODIFIED and self.random.random() < 0.5 and self.refuses_for_good

    def calm_down(self) -> None:
        self.tops_up = "on delivery"
        self._grant(1000)
        self.answer_echo()


def _short(unsettled: dict[bytes, int] | None) -> object:
    return None if unsettled is None else {key[12:17].decode(): state for key, state in unsettled.items()}
