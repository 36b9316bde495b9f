"""A round: a few odd clients at the routers of a mesh at once, beside a good pair."""

from random import Random
from typing import Final

import attrs

from tests.fuzz.mesh import LONGEST_S, SETTINGS, FuzzMesh
from tests.fuzz.odd.attaching import WORK
from tests.fuzz.odd.client import OddClient
from tests.fuzz.odd.features import Draw
from tests.fuzz.odd.ledger import BALANCED, Ledger, Message
from tests.fuzz.odd.links import Container, Link, Receiver, Sender

ACTS: Final = 60
STEPS: Final = 200
"""The most steps in which a round has to come to its end."""


class Round:
    def __init__(self, rng: Random, draws: list[Draw] | None = None) -> None:
        self.rng = rng
        self.mesh = FuzzMesh("a", "b", settings=attrs.evolve(SETTINGS, kinds=((BALANCED, "balanced"),)))
        self.ledger = Ledger(self.mesh.settings.redeliveries, lambda: self.mesh.now)
        if draws is None:
            draws = [Draw(rng) for _ in range(rng.randint(1, 3))]
        containers = [Container(f"odd{number}", draw) for number, draw in enumerate(draws)]
        twins = [container for container in containers if container.draw.has("twins")]
        self.clients = [self._client(container) for container in (*containers, *twins)]

    def _client(self, container: Container) -> OddClient:
        router = self.mesh.routers[self.rng.choice("ab")]
        client = OddClient(router, container, self.rng, self.ledger)
        router.guests.append(client)
        client.greet()
        if not client.draw.has("pipelined_open"):
            client.feed()
        return client

    def _lose(self, client: OddClient) -> None:
        """The client loses its connection, and comes back at once, at any router."""
        client.drop()
        self.clients[self.clients.index(client)] = self._client(client.container)

    def play(self) -> None:
        for _ in range(self.rng.randrange(ACTS)):
            client = self.rng.choice(self.clients)
            for _ in range(self.rng.choice((1, 1, 2, 6))):
                self._act(client)
            if client.left or (client.draw.has("resume") and self.rng.random() < 0.03):
                self._lose(client)
            else:
                self._read(client)
            if self.rng.random() < 0.05:
                self._time(self.rng.choice((0.1, 1.0)))
        self._finish()
        self._leave()
        self.mesh.check()
        self.mesh.check_forgotten()
        self.mesh.end()

    def _time(self, seconds: float) -> None:
        """Let time pass, in steps short enough that no client owes a sign of life."""
        end = self.mesh.now + seconds
        step = 0.25 if any(client.idle_ms for client in self.clients) else seconds
        while self.mesh.now < end:
            self.mesh.time(min(step, end - self.mesh.now))
            for client in self.clients:
                client.tick()

    def _read(self, client: OddClient) -> None:
        if self.rng.random() < 0.2:
            return
        is_cut = client.draw.has("cuts") and self.rng.random() < 0.7
        client.feed(self.rng.randint(0, client.waiting()) if is_cut else None)

    def _act(self, client: OddClient) -> None:
        rng = self.rng
        if rng.random() < 0.05:
            client.heartbeat()
            return
        sessions = list(client.sessions.values())
        kept = client.container.kept
        if sessions and kept and rng.random() < 0.5:
            client.resume(rng.choice(sessions), rng.choice(kept))
            return
        if not sessions or rng.random() < 0.05:
            session = client.begin()
            if session is not None:
                client.attach(session)
            return
        session = rng.choice(sessions)
        links = list(session.mine.values())
        if not links or rng.random() < 0.15:
            client.attach(session)
            return
        link = rng.choice(links)
        self._on_link(client, link)

    def _on_link(self, client: OddClient, link: Link) -> None:
        rng, session = self.rng, link.session
        if link.gone:
            client.detach(link)
            return
        chance = rng.random()
        if chance < 0.04:
            client.detach(link)
        elif chance < 0.05:
            client.end(session)
        elif chance < 0.12:
            client.flow(session)
        elif chance < 0.14 and client.draw.has("dispositions_of_nothing"):
            client.say_nothing_new(session)
        elif chance < 0.18 and client.draw.has("early_settle"):
            client.settle_sent(session, early=True)
        elif chance < 0.2 and client.draw.has("reattach") and link.timeout and link.usable:
            client.reattach(link)
        elif chance < 0.21 and client.draw.has("deaf") and client.draw.has("resume"):
            client.left = True
        elif chance < 0.2 and client.draw.has("steal"):
            client.steal(link)
        elif isinstance(link, Receiver):
            self._on_receiver(client, link)
        elif isinstance(link, Sender):
            self._on_sender(client, link)

    def _on_receiver(self, client: OddClient, link: Receiver) -> None:
        chance = self.rng.random()
        if chance < 0.4:
            if not (link.drains and (link.owes_drain or client.said)) or client.draw.has("drain_undone"):
                client.flow(link.session, link)
        elif chance < 0.9:
            client.answer(link.session)
        else:
            client.settle_received(link.session)

    def _on_sender(self, client: OddClient, link: Sender) -> None:
        if not link.usable:
            return
        chance = self.rng.random()
        if chance < 0.7:
            client.send(link)
        elif chance < 0.85:
            client.settle_sent(link.session)
        else:
            client.flow(link.session, link)

    # the end

    def _finish(self) -> None:
        """Every client does its part, until there is nothing left to do."""
        for client in [client for client in self.clients if client.left]:
            self._lose(client)
        for client in self.clients:
            self._come_back(client)
        # A router may wait for a link whose close was lost with its connection, or came before the answer (6.12).
        lasts = any(client.draw.has("resume") or client.draw.has("reattach") for client in self.clients)
        end = self.mesh.now + (LONGEST_S + 3 if lasts else 0)
        quiet = 0
        for _ in range(STEPS):
            did = [self._do_part(client) for client in self.clients]
            quiet = 0 if any(did) else quiet + 1
            if quiet >= 3 and self.mesh.now >= end:
                break
            self._time(0.5)
        assert quiet >= 3, "it comes to no end"
        self._judge()

    def _come_back(self, client: OddClient) -> None:
        """Attach all links of the client again, as far as there are handles."""
        client.feed()
        for kept in list(client.container.kept):
            any(client.resume(session, kept) for session in list(client.sessions.values()))
        while client.container.kept and (session := client.begin()) is not None:
            client.feed()
            for kept in list(client.container.kept):
                client.resume(session, kept)
        client.feed()

    def _do_part(self, client: OddClient) -> bool:
        did = bool(client.said)
        for session in list(client.sessions.values()):
            for link in list(session.mine.values()):
                if link.gone:
                    client.detach(link)
                    did = True
                elif isinstance(link, Sender) and link.usable:
                    while client.send(link, last=True):
                        did = True
            if session.begun:
                while client.answer(session, accept=True) or client.settle_received(session):
                    did = True
                while client.settle_sent(session):
                    did = True
                did = self._open_up(client, session.channel) or did
        client.feed()
        return did

    def _open_up(self, client: OddClient, channel: int) -> bool:
        """Raise window and credit where they are too low."""
        session = client.sessions[channel]
        did = False
        if session.room < 1000 or session.asked:
            client.flow(session, most=True)
            did = True
        for link in session.mine.values():
            if isinstance(link, Receiver) and link.usable and (link.room < 500 or link.asked or link.draining):
                client.flow(session, link, most=True)
                did = True
            elif isinstance(link, Sender) and link.usable and link.asked:
                client.flow(session, link)
                did = True
        return did

    def _judge(self) -> None:
        for client in self.clients:
            for session in client.sessions.values():
                assert session.begun, f"{session} is not answered"
                assert not session.owes_flow, f"{session}: an echo is not answered"
                assert not session.parting, f"{session}: detaches of {session.parting} are not answered"
                for link in session.mine.values():
                    assert link.answered, f"{link} is not answered"
                    assert not link.owes_flow, f"{link}: {link.owes_flow} is not answered"
                    if isinstance(link, Receiver):
                        assert not link.owes_drain, f"{link}: a drain is not answered"
                    assert not link.former or not self._unresumed(link), (
                        f"{link}: {self._unresumed(link)} are not resumed"
                    )
                for sent in session.sent.values():
                    if sent.link.usable and not self._may_wait(sent.message):
                        assert sent.settled or not sent.message.whole, f"{sent.message} has no outcome"
        self.ledger.check()

    def _may_wait(self, message: Message) -> bool:
        """Whether the message may wait for a subscriber with room, at a balanced address."""
        receivers = (link for client in self.clients for link in client.links() if isinstance(link, Receiver))
        return message.address == WORK and all(link.address != WORK or link.max_message for link in receivers)

    def _unresumed(self, link: Link) -> list[bytes]:
        """Tags of deliveries that the link still has to resume. Those of a publisher that is gone may stay for long."""
        if isinstance(link, Sender):
            return [row.tag for row in link.resuming]
        if link.former is None:
            return []
        alive = {one.first for client in self.clients for one in client.links() if isinstance(one, Sender)}
        rows = link.former.unsettled
        return [tag for tag, row in rows.items() if tag in link.former.named and row.message.link in alive]

    def _leave(self) -> None:
        """Some clients close, in order or all at once; others just go."""
        for client in self.clients:
            way = self.rng.choice(("close", "all", "gone"))
            if way == "all":
                for link in client.links():
                    if self.rng.random() < 0.8:
                        client.detach(link)
                for session in list(client.sessions.values()):
                    client.end(session)
            if way != "gone":
                client.close()
                client.feed()
                assert client.ended, f"{client.name}: its close is not answered"
            client.left = True
            client.leave()


def odd(rng: Random) -> None:
    """Play a round of legal clients that no one would write."""
    Round(rng).play()
