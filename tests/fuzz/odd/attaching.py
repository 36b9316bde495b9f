"""A legal client's attaches, detaches and flows, in any order and at any time."""

from collections.abc import Callable
from typing import Any, Final

from tests.fuzz.mesh import LONGEST_S
from tests.fuzz.odd.codec import Described, symbol, ulong
from tests.fuzz.odd.connection import EDGES, OddConnection
from tests.fuzz.odd.ledger import AGAIN, DYNAMIC, is_for_one
from tests.fuzz.odd.links import MOD, Kept, Link, Receiver, Sender, ahead
from tests.fuzz.odd.messages import value
from tests.fuzz.odd.session import EPOCH, GENERATION, Session

ADDRESSES: Final = ("topic/odd/o0", "topic/odd/o1")
WORK: Final = "work/odd"
PATTERNS: Final = ("topic/odd/*", "topic/odd/+", "topic/odd/#")
MOST_LINKS: Final = 5


class Attaching(OddConnection):
    # links that leave and come back

    def suspend(self, link: Link) -> None:
        """The link is detached, or its session or connection has ended. With a timeout, it may come back."""
        if not link.timeout or link.stolen or link.gone or (link.answered and link.refused):
            self.over(link)
            return
        until = self.ledger.time() + link.timeout
        left = link.former.unsettled if link.former is not None else {}
        if link.former is not None and (link.answered or link.continues):
            named = link.former.named if link.receives else ()  # a sender has the rest in `resuming`
            left = {tag: row for tag, row in left.items() if tag in named}
        rows = {**left, **(self._take_sent(link) if isinstance(link, Sender) else self._take_received(link))}
        if isinstance(link, Sender):  # in their former order
            rows = dict(sorted(rows.items(), key=lambda item: item[1].message.number))
        if isinstance(link, Receiver) and link.subscription is not None:
            link.subscription.until = min(until, link.subscription.until or until)
            if link.modes[1] == 0 and link.modes[0] != 1:
                link.subscription.loose.update(link.subscription.holds)
        self.container.kept.append(Kept(link, until, rows))

    def _take_received(self, link: Link) -> dict[bytes, Any]:
        """Take the received deliveries of the link. Released ones come again, so they are forgotten."""
        rows = [row for row in link.session.received.values() if row.link is link]
        for row in rows:
            del link.session.received[row.id]
        return {row.tag: row for row in rows if row.outcome not in AGAIN}

    def _take_sent(self, link: Sender) -> dict[bytes, Any]:
        rows = [row for row in link.session.sent.values() if row.link is link]
        for row in rows:
            del link.session.sent[row.id]
        rows = [row for row in (*rows, *link.resuming) if not (row.settled or row.message.aborted)]
        for row in rows:
            row.message.loose = row.message.loose or row.first
        return {row.tag: row for row in sorted(rows, key=lambda row: row.message.number)}

    def resume(self, session: Session, kept: Kept) -> bool:
        """Attach a kept link again. Returns whether there was a handle for it."""
        handle = self._free_handle(session)
        if handle is None or not self.opened or self.left:
            return False
        self.container.kept.remove(kept)
        for other in self.container.connections:  # it is no longer attached there when it is attached here
            other.feed()
        former = kept.link
        stays = former.session.client.router is self.router and self.ledger.time() < kept.until
        if isinstance(former, Receiver) and former.subscription is not None and former.modes[0] == 1 and not stays:
            former.subscription.loose.update(former.subscription.holds)
        link = self._endpoint(session, handle, former)
        link.former = kept if former.epoch is not None else None
        self._say_attach(link, self._map(kept) if link.former is not None else None)
        return True

    def _endpoint(self, session: Session, handle: int, former: Link) -> Link:
        """A new end for a link that was attached before."""
        link: Link
        common = (session, former.name, former.receives, handle, former.address, former.modes)
        if isinstance(former, Receiver):
            link = Receiver(*common, max_message=former.max_message, subscription=former.subscription)
        else:
            assert isinstance(former, Sender)
            initial = self.rng.choice(EDGES) if self.draw.has("wrap") else 0
            link = Sender(*common, count=initial, initial=initial, number=former.number, life=former.first)
        link.timeout, link.epoch, link.generation = former.timeout, former.epoch, former.generation
        session.mine[handle] = link
        session.waiting.append(link)
        return link

    def _map(self, kept: Kept) -> dict[bytes, Any]:
        return {tag: self._state(row.outcome) for tag, row in kept.unsettled.items()}

    def _state(self, outcome: str) -> Any:
        if outcome:
            return self.writer.composite(outcome)
        is_stated = self.draw.has("received_in_maps") and self.rng.random() < 0.5
        return self.writer.composite("received", section_number=0, section_offset=0) if is_stated else None

    def reattach(self, link: Link) -> None:
        """Attach again on the same session with a null map: nothing has happened to the link's deliveries (2.6.4)."""
        session = link.session
        self.detach(link, closed=False, for_good=True)
        handle = self._free_handle(session)
        if handle is None:
            self.suspend(link)
            return
        again = self._endpoint(session, handle, link)
        again.continues, again.former, link.heir = True, link.former, again
        rows: list[Any] = [*session.received.values(), *session.sent.values()]
        for row in [row for row in rows if row.link is link]:
            row.link = again
        if isinstance(link, Receiver) and isinstance(again, Receiver):
            again.tags = link.tags
        elif isinstance(link, Sender) and isinstance(again, Sender):
            again.resuming = link.resuming
            if link.under_way is not None:
                link.under_way.message.aborted = True
                session.sent.pop(link.under_way.id, None)
        self._say_attach(again, None)

    # links

    def links(self) -> list[Link]:
        return [link for session in self.sessions.values() for link in session.mine.values()]

    def attach(self, session: Session) -> Link | None:
        """A new link of the session."""
        handle = self._free_handle(session)
        if handle is None or len(self.links()) >= MOST_LINKS:
            return None
        receives, address = self.rng.random() < 0.5, self.rng.choice(ADDRESSES)
        if receives and self.draw.has("patterns") and self.rng.random() < 0.4:
            address = self.rng.choice(PATTERNS)
        if not receives and self.draw.has("anonymous") and self.rng.random() < 0.4:
            address = ""
        if self.draw.has("balanced") and self.rng.random() < 0.4:
            address = WORK
        dynamic = self.draw.has("dynamic") and receives and self.rng.random() < 0.3
        if self.draw.has("dynamic") and not receives and self.ledger.dynamic and self.rng.random() < 0.6:
            address = self.rng.choice(self.ledger.dynamic)
        address = "" if dynamic else address
        return self._attach(session, handle, self._new_name(receives), receives, address, dynamic=dynamic)

    def _new_name(self, receives: bool) -> str:
        """A name for a link. It may be in use in the other direction (2.6.1)."""
        if self.draw.has("names") and self.container.single:
            name, its_direction = self.container.single.pop()
            if its_direction != receives:
                return name
        self.container.links += 1
        name = f"l{self.container.links}"
        if self.draw.has("odd_names"):
            name += self.rng.choice((" ", "é😀", "/../", "\n", "x" * 60))
        self.container.single.append((name, receives))
        return name

    def _free_handle(self, session: Session) -> int | None:
        rng, held = self.rng, set(session.mine)
        if not self.draw.has("pipelined_handles"):
            held |= {link.handle for link in session.parting}
        used = len(session.theirs) + len(session.waiting)
        if used > session.handle_max:
            return None
        most = session.their_handle_max
        choices = {*range(10), *((most, rng.randint(0, most)) if self.draw.has("wide_handles") else ())}
        free = sorted(number for number in choices if number not in held and number <= most)
        return rng.choice(free) if free else None

    def _attach(
        self, session: Session, handle: int, name: str, receives: bool, address: str, dynamic: bool = False
    ) -> Link:
        rng = self.rng
        modes = (rng.choice((0, 1, 2)), rng.choice((0, 1))) if self.draw.has("modes") else (2, rng.choice((0, 1)))
        link: Link
        if receives:
            if modes[0] == 0 and not self.draw.has("all_unsettled"):
                modes = 2, modes[1]
            limit = rng.choice((0, 2**63, 2**64 - 1)) if self.draw.has("max_message_size") else None
            if self.draw.has("small_messages"):
                limit = rng.choice((20, 300, 1000))
                self.ledger.least = min(self.ledger.least, limit)
            link = Receiver(session, name, True, handle, address, modes, max_message=limit or 0)
        else:
            initial = rng.choice(EDGES) if self.draw.has("wrap") else 0
            limit = None
            link = Sender(session, name, False, handle, address, modes, count=initial, initial=initial)
        link.dynamic, link.refusable = dynamic, address.startswith(DYNAMIC)
        is_settled = receives and modes[0] == 1 and not self.draw.has("resume_settled")
        lasts = self.draw.has("resume") or self.draw.has("reattach")
        link.timeout = (
            LONGEST_S
            if lasts
            and not is_settled
            and address
            and not link.refusable
            and not self.draw.has("small_frames")
            and rng.random() < 0.7
            else 0
        )
        session.mine[handle] = link
        session.waiting.append(link)
        if modes[0] == 1 and receives:
            self.ledger.settles.add(address)
        self._say_attach(link, {} if rng.random() < 0.2 else None)
        return link

    def _say_attach(self, link: Link, unsettled: dict[bytes, Any] | None) -> None:
        rng, address, receives = self.rng, link.address, link.receives
        properties = self._any_properties()
        if link.epoch is not None:
            properties = {**(properties or {}), EPOCH: link.epoch}
        if link.generation is not None:
            properties = {**(properties or {}), GENERATION: link.generation}
        self._emit(link.session.channel, "attach", {
            "name": link.name, "handle": link.handle, "role": receives,
            "snd_settle_mode": link.modes[0], "rcv_settle_mode": link.modes[1],
            "source": self._terminus("source", link, address if receives else None),
            "target": self._terminus("target", link, None if receives else address),
            "unsettled": unsettled,
            "initial_delivery_count": link.initial if isinstance(link, Sender) else self._unneeded(),
            "max_message_size": link.max_message if isinstance(link, Receiver) else None,
            "desired_capabilities": ("q",) if self.draw.has("capabilities") else None,
            "properties": properties,
        }, whole=link.epoch is not None)  # fmt: skip
        if isinstance(link, Receiver) and rng.random() < 0.5:
            self.flow(link.session, link)

    def _unneeded(self) -> int | None:
        """A value for a field that has no meaning there."""
        return self.rng.choice((None, 0, 7, 2**32 - 1)) if self.draw.has("flow_fields") else None

    def _terminus(self, name: str, link: Link, address: str | None) -> Any:
        """A terminus. At our end it may be missing, or have any address."""
        ours = address is None
        rng, fields = self.rng, dict[str, Any]()
        if ours and rng.random() < 0.4:
            if self.draw.has("null_termini") and rng.random() < 0.5:
                return None
            address = rng.choice((None, "mine"))
        if self.draw.has("termini"):
            fields["durable"] = rng.choice((None, 0, 1, 2)) if ours else None
            fields["expiry_policy"] = rng.choice((None, "link-detach", "session-end", "connection-close"))
            fields["timeout"] = rng.choice((None, 0, 2**32 - 1)) if ours else None
            fields["capabilities"] = rng.choice((None, ("topic",), ("a", "b")))
            if name == "source":
                outcomes = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
                fields["outcomes"] = rng.choice((None, outcomes))
                fields["distribution_mode"] = rng.choice((None, "copy", "move"))
                fields["filter"] = rng.choice((None, {}))
        if name == "source" and not ours:
            fields.update(self._of_source(link))
        if self.draw.has("durable") and not ours:
            fields["durable"] = rng.choice((None, 0, 1, 2))
        if link.timeout and not ours:
            fields["timeout"] = rng.choice((LONGEST_S, 2**32 - 1))
            if self.draw.has("durable") and rng.random() < 0.3:
                fields["timeout"], fields["expiry_policy"] = rng.choice((None, 0, 1)), "never"
        if link.dynamic and not ours:
            address, fields["dynamic"] = None, True
            lives = Described(rng.choice((ulong(0x2B), symbol("amqp:delete-on-close:list"))), [])
            fields["dynamic_node_properties"] = rng.choice((None, {}, {symbol("lifetime-policy"): lives}))
        return self.writer.composite(name, address=address or None, **fields)

    def _of_source(self, link: Link) -> dict[str, Any]:
        rng, fields = self.rng, dict[str, Any]()
        if self.draw.has("default_outcomes"):
            default = rng.choice(("accepted", "rejected", "released", "modified", ""))
            fields["default_outcome"] = self.writer.composite(default) if default else None
            fields["outcomes"] = rng.choice(
                (None, ("amqp:accepted:list",), ("amqp:released:list", "amqp:accepted:list"))
            )
        if self.draw.has("filters") and self.opened:
            unknown = Described(symbol("x:unknown:string"), value(rng, 0))
            selector = Described(
                rng.choice((symbol("apache.org:selector-filter:string"), ulong(0x468C00000004))), "1 = 1"
            )
            if link.dynamic or is_for_one(link.address):
                selector = unknown
            filters = {symbol("u"): unknown, symbol("s"): selector, symbol("also"): unknown}
            fields["filter"] = {key: val for key, val in filters.items() if rng.random() < 0.5}
        return fields

    def detach(self, link: Link, *, closed: bool | None = None, for_good: bool = False) -> None:
        """`for_good`: the caller handles the link's return."""
        session = link.session
        link.closed = self.rng.random() < 0.6 if closed is None else closed
        error = self._error() if self.rng.random() < 0.05 else None
        link.detached = True
        del session.mine[link.handle]
        if not link.gone:
            session.parting.append(link)
        if link.closed:
            self.over(link)
        elif not for_good:
            self.suspend(link)
        self._emit(session.channel, "detach", {"handle": link.handle, "closed": link.closed, "error": error})

    def steal(self, link: Link) -> None:
        """Attach the link once more, on this or another session. That ends the former attach (2.6.1)."""
        session = self.rng.choice(list(self.sessions.values()))
        handle = self._free_handle(session)
        if self.draw.has("small_windows") and not self.draw.has("steal_unread"):
            return
        if (
            handle is None
            or link.stolen
            or link.gone
            or link.timeout
            or link.dynamic
            or len(self.links()) >= MOST_LINKS
        ):
            return
        link.stolen = True
        self.over(link)
        self._attach(session, handle, link.name, link.receives, link.address)

    # flow

    def flow(self, session: Session, link: Link | None = None, *, most: bool = False) -> None:
        """`most`: grant windows and credit for everything."""
        rng = self.rng
        known = session.next_in if session.begun else None
        if session.window < 2**31 or not self.draw.has("huge_windows"):
            former, session.window = session.window, self._window(most)
            if not self.draw.has("less_window"):
                session.window = max(session.window, former - ahead(session.next_in, session.stated_in))
        session.stated_in = session.next_in
        window, echo = session.window, not most and self.draw.has("echo") and rng.random() < 0.3
        if link is not None and not link.answered and not self.draw.has("echo_at_once"):
            echo = False
        if link is not None and link.asked:
            echo = False  # an answer does not ask (docs/clients.md)
        fields: dict[str, Any] = {
            "next_incoming_id": known, "incoming_window": window, "next_outgoing_id": session.next_out,
            "outgoing_window": rng.choice((0, 1000, 2**32 - 1)), "echo": echo,
        }  # fmt: skip
        session.asked = session.asked and link is not None
        then: Callable[[], None] = lambda: None  # noqa: E731
        if isinstance(link, Receiver):
            then = self._receivers_flow(link, fields, most)
        elif isinstance(link, Sender):
            then = self._senders_flow(link, fields)

        def read() -> None:
            session.window_read(known, window)
            session.owes_flow = session.owes_flow or (echo and link is None)
            then()

        self._emit(session.channel, "flow", fields, then=read)

    def _window(self, most: bool) -> int:
        return 2000 if most else self.rng.choice((0, 1, 2, 5)) if self.draw.has("small_windows") else 1000

    def _receivers_flow(self, link: Receiver, fields: dict[str, Any], most: bool) -> Callable[[], None]:
        rng, link.asked = self.rng, False
        credits = (0, 1, 2, 5, 100, *((2**31 - 1, 2**31, 2**32 - 1) if self.draw.has("much_credit") else ()))
        credit = 1000 if most else rng.choice(credits)
        drain = (
            not most and self.draw.has("drain") and credit < 2**31 and rng.random() < 0.3
        )  # else counts do not compare
        count = link.count
        stated = link.initial if count is None else count
        if not self.draw.has("less_credit"):
            credit = max(credit, link.stated - max(0, ahead(stated, link.stated_at)))
        link.stated, link.stated_at, link.drains = credit, stated, drain
        fields.update(handle=link.handle, delivery_count=count, link_credit=credit, drain=drain)
        fields.update(available=self._unneeded(), properties=self._any_properties())
        echo = fields["echo"]

        def read() -> None:
            used = (link.count - (link.initial if count is None else count)) % MOD if link.count is not None else 0
            link.room = max(0, credit - used)
            link.lenient = max(link.lenient, link.room)
            link.draining, link.may_drain, link.owes_drain = drain, link.may_drain or drain, drain
            link.owes_flow = "an echo" if echo else link.owes_flow

        return read

    def _senders_flow(self, link: Sender, fields: dict[str, Any]) -> Callable[[], None]:
        available = self.rng.choice((None, 0, 5))
        is_short = self.draw.has("flow_fields") and not link.asked and self.rng.random() < 0.5
        credit = None if is_short else link.credit  # an answer has all of it (docs/clients.md)
        link.asked = False
        fields.update(handle=link.handle, delivery_count=link.count, link_credit=credit, available=available)
        fields.update(properties=self._any_properties())
        echo = fields["echo"]

        def read() -> None:
            link.owes_flow = "an echo" if echo else link.owes_flow

        return read
