"""A publisher: it sends in order, keeps its unsettled deliveries, and resumes with them unless it is plain."""

from collections import deque
from itertools import islice
from typing import Any

from failover.client.state.comparison import ResumeStep, step
from tests.simulation.client import MOST, Client
from tests.simulation.link import Link
from tests.simulation.publisher_link import PublisherLink, Sent
from tests.simulation.ttl import draw_until
from topic.delivery.outcomes import DeliveryOutcome
from topic.identity import GENERATION_LENGTH, Epoch

LONGEST_BATCH = 2.0
"""Seconds for which a publisher waits for the rest of a batch before it settles what it has (protocol 10)."""


class Publisher(Client):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.link: PublisherLink | None = None
        self.first = self.random.random() < self.knobs.first
        self.brings_generation = self.random.random() < 0.3
        self.says_that_it_answers = self.knobs.answering >= 1 or self.random.random() < self.knobs.answering
        self.answers = self.says_that_it_answers or self.random.random() < 0.5
        self.lingers = self.says_that_it_answers or self.random.random() < self.knobs.lingering
        self.life = 0
        self.confirmed = 0
        """The number of the last link on which a router has named its generation."""
        self.left_to_send = self.knobs.messages
        self.credit = 0
        self.unsettled: dict[bytes, int] | None = None
        """The publisher's map, in the order of sending: tag -> 0, or the outcome. None is the null map of a new
        life."""
        self.said: dict[bytes, int] | None = None
        """The map of the attach that is under way, or was answered last."""
        self.texts: dict[bytes, bytes] = {}
        """Tag -> message, for all unsettled deliveries."""
        self.again: deque[tuple[bytes, ResumeStep]] = deque()
        """The tags of deliveries to be transferred before anything new, each with the way in which to transfer it."""
        self.handles: dict[int, bytes] = {}
        """Handle -> tag, for deliveries that were transferred on this link and are not settled."""
        self._handle = 0
        self._unsettled_yet: list[int] = []
        """Handles that wait to be settled with the rest of a batch."""
        self._named: set[bytes] = set()
        """The tags in the publisher's incomplete map, if the router's answer was complete."""
        self._number = 0
        self._tags = [b"t%d" % i for i in range(self.knobs.window + self.knobs.tags)]

    @property
    def waiting(self) -> list[bytes]:
        """Messages without an outcome."""
        return [self.texts[tag] for tag, state in (self.unsettled or {}).items() if not state]

    def open(self, router: Any) -> None:
        self.ask_otherwise()
        if self.unsettled is None:
            self._new_life()
        link = self.link = PublisherLink(router, self, len(self.opened) + 1, self.first)
        self.said = unsettled = None if self.fresh else self.map_to_send(self.unsettled or {})
        self.partial = self.partial and not self.fresh
        self.note(self.name, f"attaches at {router.name} with {unsettled}{', incomplete' if self.partial else ''}")
        for tag in [tag for tag, state in (unsettled or {}).items() if state]:
            self.judge.settled(self.texts[tag])  # the map tells the router this outcome
        (self.perhaps_late_null if unsettled is None else self.perhaps_late)(link)
        generation = None if self.silent else self.generation
        link.to_router(link.attach, generation, self.seen, unsettled, not self.partial)

    def _new_life(self) -> None:
        self.life += 1
        self.fresh = True
        self.unsettled = {}
        self.generation = None
        if self.brings_generation:
            self.generation = b"%s.%d" % (self.name.encode(), self.life)
            self.generation = self.generation.ljust(GENERATION_LENGTH, b".")

    def begin_afresh(self) -> None:
        self.judge.life_over(self.texts.values())
        self.unsettled = None
        self.texts.clear()

    def left(self) -> None:
        self.credit = 0
        self.again.clear()
        self.handles.clear()
        self._named.clear()
        self._unsettled_yet.clear()

    # answers of the router

    def attached(
        self, link: Link, credit: int, generation: bytes, epoch: Epoch, ours: dict[bytes, int] | None, complete: bool
    ) -> None:
        if link is not self.link:
            return
        self.judge.check(not self.answered, "5 one answer: an attach is answered once")
        assert self.unsettled is not None
        assert len(generation) == GENERATION_LENGTH
        self.answered = True
        self.epoch = epoch
        if not self.fresh and generation != self.judge.lives.generations[self.name, self.life]:
            self._in_doubt(ours or {})
        elif not self.fresh:
            self.judge.lives.goes_on(self)
            self._resume(ours or {}, complete)
        else:
            self.judge.lives.begun(self, generation)
        self.fresh = False
        self.confirmed = link.number
        self.generation = generation
        self.judge.lives.generations[self.name, self.life] = generation
        self.credited(link, credit)

    def _in_doubt(self, ours: dict[bytes, int]) -> None:
        """The router has another life than ours. Resend nothing under the old life, and give up what the router knows
        by our tags. (A client that echoes nothing gets the life that the router considers its latest. If the router's
        answer or its own map was incomplete, it attaches again to say that the rest is over, too.)"""
        self.judge.lives.renewed(self)
        self.partial = self.partial or not ours.keys() >= (self.said or {}).keys()
        self.begin_afresh()
        self._new_life()
        self.again.extend((tag, ResumeStep.ABORTED) for tag in ours)

    def _resume(self, ours: dict[bytes, int], complete: bool) -> None:
        assert self.unsettled is not None
        if not complete:  # send half as many entries, until there is room for all answers
            self.partial, self.most = True, max(len(self.said or ()) // 2, 1)
            return
        self.most, self._named = MOST, set(self.said or ())
        for tag, state in list((self.said or {}).items()):
            due = step(state, ours.get(tag))
            if due in (ResumeStep.NEW, ResumeStep.WHOLE):
                self.again.append((tag, self._perhaps_abort(tag, due)))
            else:
                known = due is ResumeStep.FORGET
                self.judge.check(known, f"7 resume: {self.name} has an outcome of {tag!r}, which the router lists")
                self._forget(tag)

    def _perhaps_abort(self, tag: bytes, step: ResumeStep) -> ResumeStep:
        """Perhaps the application gives up a delivery in doubt."""
        share = self.knobs.gives_up if step is ResumeStep.NEW else self.knobs.early
        if self.calm or (step is ResumeStep.NEW and not share) or self.random.random() >= share:
            return step
        self.note(self.name, f"gives up {self.texts[tag].decode()}")
        self.judge.given_up(self.texts[tag])
        self._forget(tag)
        return ResumeStep.ABORTED

    def _forget(self, tag: bytes) -> None:
        assert self.unsettled is not None
        del self.unsettled[tag]
        self.judge.settled(self.texts.pop(tag))

    def credited(self, link: Link, count: int) -> None:
        if link is self.link:
            self.judge.check(self.answered, "6 credit: none before the attach is answered")
            self.credit += count
            under_way = self.credit + len(self.handles)
            self.judge.check(under_way <= self.knobs.window, "6 credit: no more than the window is unsettled")
            if self.credit == count:
                self.later(self.publish)

    def outcome(self, link: Link, handles: list[int], outcome: DeliveryOutcome) -> None:
        if link is not self.link:
            return
        assert self.unsettled is not None
        for handle in handles:
            tag = self.handles.get(handle)
            if tag is not None:
                self.judge.check(not self.unsettled[tag], "5 one outcome: a delivery is answered once")
                self.unsettled[tag] = outcome
                self.judge.informed(self.texts[tag], outcome)
                if self.first:
                    del self.handles[handle]
                    self._forget(tag)
                elif self.knobs.batch > 1:
                    self._settle_in_batches(link, handle)
                else:
                    self.schedule.after(self.random.random() * self.knobs.client_delay, self._settle, link, handle)

    def _settle_in_batches(self, link: PublisherLink, handle: int) -> None:
        if not self._unsettled_yet:
            self.schedule.after(LONGEST_BATCH, self._settle_batch, link)
        self._unsettled_yet.append(handle)
        if len(self._unsettled_yet) >= self.knobs.batch:
            self._settle_batch(link)

    def _settle_batch(self, link: PublisherLink) -> None:
        if link is self.link:
            batch, self._unsettled_yet = self._unsettled_yet, []
            for handle in batch:
                self._settle(link, handle)

    def echo(self, link: Link) -> None:
        if self.link is not None and link is self.link and self.answers:
            link.to_router(self.link.signs.answered)

    # actions of the publisher

    def publish(self) -> None:
        """Publish some messages as credit allows: first resumed deliveries, then new ones."""
        link = self.link
        if link is None or not self.answered:
            return
        if self.partial and not self.again:
            if self.calm and not self._named.isdisjoint(self.unsettled or ()):
                self.later(self.publish)  # there is room for more when the deliveries in the map are done
            else:
                self.attach_again(link)
            return
        if not self.credit or not (self.again or self.left_to_send):
            return
        most = min(self.credit, self.random.choice((1, 1, 2, 5)))
        if self._reorders() and not self.partial:
            sent = self._send_new(link, most)
        elif self.again:
            sent = [self._transfer(*self.again.popleft()) for _ in range(min(most, len(self.again)))]
        else:
            sent = self._send_new(link, most)
        if sent:
            self.credit -= len(sent)
            link.to_router(link.transfers, sent)
        self.later(self.publish)

    def _reorders(self) -> bool:
        """Whether a new message goes before deliveries that are to be transferred again. Then their order
        changes, too."""
        if not self.knobs.reorder or len(self.again) < 1 or self.random.random() >= self.knobs.reorder:
            return False
        self.note(self.name, "transfers in another order")
        self.again.rotate(self.random.randrange(len(self.again)))
        self.judge.lives.unordered.add((self.name, self.life))
        return self.left_to_send > 0 and self.random.random() < 0.5

    def _transfer(self, tag: bytes, step: ResumeStep) -> Sent:
        self._handle += 1
        if step is ResumeStep.ABORTED:
            self.note(self.name, f"aborts {tag.decode()}")
            return self._handle, tag, b"", step, True
        text, settled = self.texts[tag], self._settles_again()
        how = f"{step.name}, settled" if settled else step.name
        self.note(self.name, f"sends {text.decode()} as {tag.decode()} again, {how}")
        if settled:
            self.judge.given_up(text)
            self._forget(tag)
        else:
            self.handles[self._handle] = tag
        return self._handle, tag, text, step, settled

    def _settles_again(self) -> bool:
        """Whether the publisher settles a delivery by transferring it again."""
        return self.knobs.settles_again > 0 and not self.calm and self.random.random() < self.knobs.settles_again

    def _send_new(self, link: PublisherLink, most: int) -> list[Sent]:
        assert self.unsettled is not None
        sent: list[Sent] = []
        for tag in self._free_tags(min(most, self.left_to_send)):
            settled = self.random.random() < self.knobs.presettled
            self._number += 1
            tag = b"s%d" % self._number if settled else tag  # these are not withheld while the network knows a tag
            text = b"%s.%d.%d%s" % (self.name.encode(), self.life, self._number, b"s" if settled else b"")
            text = text.ljust(self.knobs.message, b".")
            self._handle += 1
            if not settled:
                self.unsettled[tag] = 0
                self.texts[tag] = text
                self.handles[self._handle] = tag
                self._perhaps_settle_early(link, self._handle)
            self.note(self.name, f"sends {text.decode()} as {tag.decode()}")
            self.judge.sent(self, text, tag, settled)
            message, now = self.judge.messages[text], self.schedule.now
            message.sent_at, message.until = now, draw_until(self.random, self.knobs.ttl, now)
            sent.append((self._handle, tag, text, ResumeStep.NEW, settled))
        self.left_to_send -= len(sent)
        return sent

    def _free_tags(self, count: int) -> list[bytes]:
        """Up to `count` free tags. Half of the time they are the first ones, so tags are used again soon. If attaches
        may be late (`Knobs.late`), they are new ones."""
        if self.knobs.late:
            return [b"u%d" % (self._number + 1 + i) for i in range(count)]
        unsettled = self.unsettled or {}
        start = self.random.randrange(len(self._tags)) if self.random.random() < 0.5 else 0
        order = self._tags[start:] + self._tags[:start]
        return list(islice((tag for tag in order if tag not in unsettled and self._forgotten(tag)), count))

    def _forgotten(self, tag: bytes) -> bool:
        """Whether the network has forgotten the last delivery with this tag (protocol 10, Limits). If no client comes
        back with a map, the network may still know it: a router withholds the next delivery until it is forgotten. The
        network may know it, too, if the home of a plain publisher tells the two apart."""
        nobody_resumes = self.plain and not any(reader.resumes for reader in self.judge.readers.values())
        is_apart = self.plain and self.knobs.reuse and self.judge.is_told_apart(self, tag)
        return nobody_resumes or is_apart or self.judge.forgotten_everywhere(self, tag)

    def _perhaps_settle_early(self, link: PublisherLink, handle: int) -> None:
        if not self.calm and self.random.random() < self.knobs.early:
            self.schedule.after(self.random.random() * self.knobs.patience, self._settle, link, handle)

    def _settle(self, link: PublisherLink, handle: int) -> None:
        if link is not self.link or handle not in self.handles:
            return
        tag = self.handles.pop(handle)
        assert self.unsettled is not None
        if not self.unsettled[tag]:
            self.note(self.name, f"settles {self.texts[tag].decode()} before an outcome")
            self.judge.given_up(self.texts[tag])
        self._forget(tag)
        link.to_router(link.settle, [handle])
