"""A round: a few odd clients at the routers of a mesh, at once, with a good pair beside them."""

from random import Random
from typing import Final

from tests.fuzz.mesh import FuzzMesh
from tests.fuzz.odd.client import OddClient
from tests.fuzz.odd.features import Draw
from tests.fuzz.odd.ledger import Ledger
from tests.fuzz.odd.links import Link, Receiver, Sender

ACTS: Final = 60
STEPS: Final = 200
"""In which all is to come to an end."""


class Round:
    def __init__(self, rng: Random, draws: list[Draw] | None = None) -> None:
        self.rng = rng
        self.mesh = FuzzMesh("a", "b")
        self.ledger = Ledger(self.mesh.settings.redeliveries)
        if draws is None:
            draws = [Draw(rng) for _ in range(rng.randint(1, 3))]
        self.clients = [self._client(f"odd{number}", draw) for number, draw in enumerate(draws)]

    def _client(self, name: str, draw: Draw) -> OddClient:
        router = self.mesh.routers[self.rng.choice("ab")]
        client = OddClient(router, name, self.rng, draw, self.ledger)
        router.guests.append(client)
        return client

    def play(self) -> None:
        for client in self.clients:
            client.greet()
            if not client.draw.has("pipelined_open"):
                client.feed()
        for _ in range(self.rng.randrange(ACTS)):
            client = self.rng.choice(self.clients)
            for _ in range(self.rng.choice((1, 1, 2, 6))):
                self._act(client)
            self._read(client)
            if self.rng.random() < 0.05:
                self.mesh.time(self.rng.choice((0.1, 1.0)))
        self._finish()
        self._leave()
        self.mesh.check()
        self.mesh.check_forgotten()
        self.mesh.end()

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
        elif chance < 0.18 and client.draw.has("early_settle"):
            client.settle_sent(session, early=True)
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
        """Every client does its part, until there is nothing to be done."""
        quiet = 0
        for _ in range(STEPS):
            did = [self._do_part(client) for client in self.clients]
            quiet = 0 if any(did) else quiet + 1
            if quiet == 3:
                break
            self.mesh.time(0.5)
        assert quiet == 3, "it comes to no end"
        self._judge()

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
        """Window and credit, where there is not enough."""
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
                for sent in session.sent.values():
                    if sent.link.usable:
                        assert sent.settled or not sent.message.whole, f"{sent.message} has no outcome"
        self.ledger.check()

    def _leave(self) -> None:
        """Some say so, in order or all at once; others just go."""
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
    """Legal clients that nobody would write."""
    Round(rng).play()
