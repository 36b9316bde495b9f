"""A legal client, which draws its next act: what it transfers, and what it answers."""

from itertools import pairwise
from typing import Any

from tests.fuzz.odd.attaching import ADDRESSES, WORK, Attaching
from tests.fuzz.odd.ledger import Message
from tests.fuzz.odd.links import MOD, Received, Sender, Sent
from tests.fuzz.odd.messages import annotations, message
from tests.fuzz.odd.session import Session


class OddClient(Attaching):
    # transfers

    def send(self, link: Sender, *, last: bool = False) -> bool:
        """Send the next frame of a delivery on the link. `last`: begin no new delivery. Returns whether there was a
        frame.
        """
        if link.session.their_window <= 0:
            return False
        if not link.pieces:
            if link.credit <= 0 or (last and not link.resuming):
                return False
            if link.resuming:
                self._begin_again(link, link.resuming.popleft())
            else:
                self._begin_delivery(link)
        self._transfer(link)
        return True

    def _begin_delivery(self, link: Sender) -> None:
        rng, session = self.rng, link.session
        self.container.marks += 1
        mark = f"{self.name} {self.container.marks}".encode()
        address = link.address or rng.choice((*ADDRESSES, *((WORK,) if self.draw.has("balanced") else ())))
        to = None if link.address else address
        ttl = rng.choice((1, 100, 2000)) if self.draw.has("ttl") and rng.random() < 0.3 else None
        message_format, payload = message(rng, self.writer, mark, rich=self.draw.has("sections"),
                                          foreign=self.draw.has("formats"), to=to, ttl=ttl)  # fmt: skip
        if len(payload) > (link.max_message or 9000):
            message_format, payload = message(rng, self.writer, mark, rich=False, foreign=False, to=to, ttl=ttl)
        presettled = link.modes[0] == 1 or (link.modes[0] == 2 and rng.random() < 0.15)
        one = Message(link.first, link.number, address, message_format, payload, presettled, len(payload),
                      self.ledger.now())  # fmt: skip
        one.hurries = ttl is not None
        self.ledger.publish(one)
        tag = str(link.number).encode().ljust(rng.choice((1, 4, 32)) if self.draw.has("tags") else 4, b".")
        mode = rng.choice((None, 0, 1)) if self.draw.has("transfer_modes") and not presettled else None
        first = link.modes[1] == 0 or mode == 0
        if link.modes[1] == 0 and mode == 1:
            mode = None
        link.number += 1
        self._begin_sent(link, Sent(session.next_id, tag, one, link, first), mode)

    def _begin_again(self, link: Sender, row: Sent) -> None:
        """Transfer a delivery of a former attach again, with `resume` if the router has it."""
        assert link.former is not None
        sent = Sent(link.session.next_id, row.tag, row.message, link, link.modes[1] == 0)
        settles = link.modes[0] != 0 and self.draw.has("settled_again") and self.rng.random() < 0.4
        resumed = row.tag in link.former.named
        self._begin_sent(link, sent, None, settles=settles)
        if resumed:
            link.pieces[0]["resume"] = True
        if self.draw.has("aborted_again") and self.rng.random() < 0.3:
            self._abort(link, sent, self.rng.randrange(len(link.pieces)))

    def _abort(self, link: Sender, sent: Sent, after: int) -> None:
        """Abort the delivery after this many of its frames."""
        rng, first = self.rng, link.pieces[0]
        while len(link.pieces) > after:
            link.pieces.pop()
        named = {} if after else {key: val for key, val in first.items() if key not in ("more", "settled")}
        link.pieces.append(named | {"handle": link.handle, "aborted": True, "more": rng.choice((None, True, False)),
                                    "payload": rng.choice((b"", b"ignored"))})  # fmt: skip
        sent.message.aborted = True

    def _begin_sent(self, link: Sender, sent: Sent, mode: int | None, *, settles: bool = False) -> None:
        session = link.session
        link.count = (link.count + 1) % MOD
        link.credit -= 1
        session.next_id = (session.next_id + 1) % MOD
        link.under_way = sent
        if not sent.message.presettled:
            session.sent[sent.id] = sent
        sent.settles = sent.message.presettled or settles
        link.pieces.extend(self._pieces(link, sent, mode))
        is_new = not (link.former or sent.message.whole)
        if is_new and len(link.pieces) > 1 and self.draw.has("abort") and self.rng.random() < 0.2:
            self._abort(link, sent, self.rng.randrange(1, len(link.pieces)))

    def _pieces(self, link: Sender, sent: Sent, mode: int | None) -> list[dict[str, Any]]:
        rng, one, settles = self.rng, sent.message, sent.settles
        room = self._most_frame - 150
        cuts = [0, *range(room, len(one.payload), room), len(one.payload)]
        if self.draw.has("many_frames"):
            cuts = sorted([*cuts, *(rng.randint(0, len(one.payload)) for _ in range(rng.randrange(4)))])
        late = settles and self.draw.has("settled_late")
        always = settles and not late and not self.draw.has("settled_first")
        parts = [one.payload[start:end] for start, end in pairwise(cuts)]
        state = None
        if self.draw.has("transfer_states") and not settles and rng.random() < 0.5:
            state = self.writer.composite("received", section_number=0, section_offset=0)
        pieces = []
        for at, part in enumerate(parts):
            is_last = at == len(parts) - 1
            says = at == 0 or rng.random() < 0.3
            settled = settles and (is_last if late else (at == 0 or always or rng.random() < 0.5))
            unsaid = (None, False) if late or not settles else (None,)
            pieces.append({
                "handle": link.handle,
                "delivery_id": sent.id if says else None,
                "delivery_tag": sent.tag if says else None,
                "message_format": (one.format or None) if says else None,
                "settled": True if settled else rng.choice(unsaid),
                "more": not is_last,
                "rcv_settle_mode": mode if at == 0 else None,
                "state": state if at == 0 else None,
                "batchable": rng.choice((None, True)),
                "payload": part,
            })  # fmt: skip
        return pieces

    def _transfer(self, link: Sender) -> None:
        session, sent, fields = link.session, link.under_way, link.pieces.popleft()
        assert sent is not None
        payload = fields.pop("payload")
        session.next_out = (session.next_out + 1) % MOD
        session.their_window -= 1
        is_last = not link.pieces

        def read() -> None:
            sent.known = True

        self._emit(session.channel, "transfer", fields, payload, then=read)
        if is_last:
            link.under_way = None
            sent.message.whole = sent.message.whole or not sent.message.aborted
            sent.message.settled = sent.settles or sent.message.aborted
            if sent.message.settled:
                session.sent.pop(sent.id, None)

    # outcomes

    def answer(self, session: Session, *, accept: bool = False) -> bool:
        """Answer the oldest deliveries without an answer. Returns whether there were any."""
        rng = self.rng
        rows = [one for one in session.received.values() if one.link.usable and not one.outcome]
        if not rows:
            return False
        first = rows[0]
        kinds = ["accepted"] * 4 + [kind for kind in ("rejected", "released", "modified", "received", "none")
                                    if self.draw.has(f"outcome_{kind}")]  # fmt: skip
        kind = "accepted" if accept else rng.choice(kinds)
        mode = first.link.modes[1]
        if kind == "none" and (mode == 1 or not first.link.default_outcome):
            kind = "accepted"
        alike = [first]
        if rng.random() < 0.7:  # a range covers all unsettled deliveries in it
            for number in range(1, rng.choice((1, 5, 50))):
                following = session.received.get((first.id + number) % MOD)
                if following is None and not self.draw.has("wide_ranges"):
                    break
                if following is not None:
                    if following.link.modes[1] != mode or following.outcome or not following.link.usable:
                        break
                    alike.append(following)
        settles = kind == "none" or (mode == 0 and kind != "received" and (accept or rng.random() < 0.7))
        self._disposition(session, alike, kind, settles)
        return True

    def _disposition(self, session: Session, rows: list[Received], kind: str, settles: bool) -> None:
        rng = self.rng
        details: dict[str, Any] = {}
        final = False
        match kind:
            case "received":
                details = {"section_number": 0, "section_offset": 0}
            case "rejected":
                details = {"error": self._error() if rng.random() < 0.5 else None}
            case "modified":
                final = rng.random() < 0.2
                details = {
                    "delivery_failed": rng.choice((None, True)),
                    "undeliverable_here": True if final else None,
                    "message_annotations": annotations(rng, nests=False) if rng.random() < 0.5 else None,
                }
        state = None if kind == "none" else self.writer.composite(kind, **details)
        first, last = rows[0].id, rows[-1].id
        self._emit(session.channel, "disposition", {
            "role": True, "first": first, "last": None if first == last and rng.random() < 0.5 else last,
            "settled": settles, "state": state, "batchable": rng.choice((None, True)),
        })  # fmt: skip
        for row in rows:
            if kind != "received":
                row.outcome = row.link.default_outcome if kind == "none" else kind
                assert row.link.subscription is not None
                self.ledger.answer(row.link.subscription, row.message, row.outcome, final=final)
            if settles:
                self._settled(session, row)

    def _settled(self, session: Session, row: Received) -> None:
        row.settled = True
        session.received.pop(row.id, None)
        row.link.tags.pop(row.tag, None)

    def say_nothing_new(self, session: Session) -> None:
        """Repeat a state of a delivery in either direction."""
        row = next((one for one in session.received.values() if one.link.usable), None)
        sent = next((one for one in session.sent.values() if one.known and one.message.whole and one.link.usable), None)
        if row is not None:
            state = self.writer.composite(row.outcome) if row.outcome in ("accepted", "rejected") else None
            self._emit(session.channel, "disposition", {"role": True, "first": row.id, "last": row.id, "state": state})
        elif sent is not None:
            state = None
            if self.draw.has("transfer_states"):
                state = self.writer.composite("received", section_number=0, section_offset=0)
            self._emit(session.channel, "disposition", {
                "role": False, "first": sent.id, "last": None, "settled": False, "state": state})  # fmt: skip

    def settle_received(self, session: Session) -> bool:
        """In mode first, settle a delivery that was answered before. Returns whether there was any."""
        rows = [one for one in session.received.values() if one.link.modes[1] == 0 and one.outcome and one.link.usable]
        for row in rows[:1]:
            state = self.writer.composite("accepted") if row.outcome == "accepted" and self.rng.random() < 0.5 else None
            self._emit(session.channel, "disposition", {
                "role": True, "first": row.id, "last": None, "settled": True, "state": state})  # fmt: skip
            self._settled(session, row)
        return bool(rows)

    def settle_sent(self, session: Session, *, early: bool = False) -> bool:
        """Settle the oldest deliveries that have an outcome; with `early`, also without one. Returns whether there were
        any.
        """
        rows = [
            one
            for one in session.sent.values()
            if one.message.whole and one.link.under_way is not one and not one.settled and (one.outcome or early)
        ]
        if not rows:
            return False
        alike = [rows[0]]
        while (following := session.sent.get((alike[-1].id + 1) % MOD)) in rows and self.rng.random() < 0.7:
            assert following is not None
            alike.append(following)
        state = self.writer.composite("accepted") if self.rng.random() < 0.2 and rows[0].outcome == "accepted" else None
        if any(one.outcome != "accepted" for one in alike):
            state = None
        first, last = alike[0].id, alike[-1].id
        for one in alike:
            one.settled = one.message.settled = True
        self._emit(session.channel, "disposition", {
            "role": False, "first": first, "last": None if first == last else last, "settled": True, "state": state,
        })  # fmt: skip
        return True
