"""The judge of transactions on queues (protocol 14.20).

1. An entry carries out all of a transaction, or nothing of it.
2. A set carries out a transaction once, however many entries have it.
3. A set carries out only what a client has asked to commit, and what its client has not read to be rolled back.
4. If a client reads that its transaction is committed, the set has carried it out: its messages are in their queues,
   with all that is promised of messages there, and the messages that it has taken are gone.
5. If a transaction is not carried out, the messages that it was to take come back, or their consumer still has them
   (`tests.topic.queues.judge`, *missing*).

Only a client that has sent the discharge, and has lost its link before the answer, is in doubt. Then a message that the
transaction takes may be processed twice: by the transaction, and by whoever gets it meanwhile.
"""

from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.transactions import Deal
from tests.topic.queues import judge as rules
from topic.actions import TransactionEnd
from topic.delivery.outcomes import DeliveryOutcome
from topic.edge.unconfirmed import FINAL
from topic.identity import link_name
from topic.queues.proposals import Transact

if TYPE_CHECKING:
    from tests.simulation.queue_judge import Queues
    from tests.simulation.router import Router

Part = tuple[str, bytes, bytes]
"""The queue, the message, and the name of the consumer that takes it; empty for a message that is put there."""


class Deals:
    """The transactions of all clients."""

    def __init__(self, queues: "Queues") -> None:
        self._queues = queues
        self._declared: dict[tuple[str, int, bytes], Deal] = {}
        """Keyed by router, incarnation and name."""
        self._numbered: dict[tuple[str, str, int, int], Deal] = {}
        """Keyed by set, router, incarnation and number: the transactions that routers have asked a set for."""
        self._asked: set[Deal] = set()
        """The transactions that a router was asked to commit."""
        self._done: Counter[Deal] = Counter()
        """How often a set has carried out a transaction."""
        self.seen: Counter[str] = Counter()
        """How transactions have ended, for tests of the model."""

    # events of clients

    def posted(self, queue: str, text: bytes) -> None:
        """A client puts a message for a queue into a transaction."""
        is_lost = self._queues.is_lost(self._queues.set_of(queue))
        self._queues.rules[queue].sent(text, rules.Message(may_be_gone=is_lost, is_loose=is_lost))

    def declared(self, router: "Router", name: bytes, deal: Deal) -> None:
        self._declared[router.name, router.incarnation, name] = deal

    def asked(self, deal: Deal) -> None:
        """A router reads that the client commits the transaction."""
        self._asked.add(deal)

    def told(self, deal: Deal) -> None:
        """The client reads how its transaction has ended."""
        assert deal.end is not None
        self.seen[deal.end.name if deal.commits else "rolled back as asked"] += 1
        set_ = self._queues.set_of(deal.queue)
        if deal.end is not TransactionEnd.COMMITTED:
            self._check(set_, not self._done[deal], f"rollback: the {deal} is told to be rolled back")
            return
        self._check(set_, deal in self._asked, f"rollback: the {deal} is told to be committed")
        is_done = self._done[deal] > 0 or not self._expected(deal)
        self._check(set_, is_done, f"committed: the {deal} is told to be, and nothing of it was carried out")
        consumer = self._queues.consumers[deal.client]
        for queue, text in deal.posts:
            self._queues.rules[queue].told(text, DeliveryOutcome.ACCEPTED)
        for one in deal.retired:
            if one.outcome in FINAL:
                self._queues.rules[deal.queue].settled(consumer, one.text)

    def lost(self, deal: Deal) -> None:
        """The client has lost the link of its transaction before the answer."""
        self.seen["in doubt" if deal.is_discharged else "lost"] += 1
        if deal.commits:
            self._queues.rules[deal.queue].loosen(one.text for one in deal.retired)

    # events of routers

    def watch(self, router: "Router") -> None:
        """Note the numbers that a router has given to transactions since its last step."""
        transactions = router.node.transactions if self._declared else None
        for one, number in transactions._deciding.values() if transactions is not None else ():
            deal = self._declared[router.name, router.incarnation, one.id]
            self._numbered[one.set, router.name, router.incarnation, number] = deal

    # what the sets' logs say

    def decided(self, set_: str, asked: Transact, parts: list[Part]) -> None:
        """An entry with a transaction was applied, and has put and taken these messages."""
        deal = self._numbered.get((set_, asked.router, asked.incarnation, asked.number))
        self._check(set_, deal is not None, f"asked: nobody has asked {set_} for {asked}")
        if deal is None or not parts:
            self.seen["entries without effect"] += 1
            return
        self._check(set_, deal in self._asked, f"rollback: the {deal} is carried out, and was not to be")
        is_open = deal.end in (None, TransactionEnd.COMMITTED)
        self._check(set_, is_open, f"rollback: the {deal} is carried out, and its client reads that it is not")
        self._done[deal] += 1
        self._check(set_, self._done[deal] == 1, f"once: the {deal} is carried out {self._done[deal]} times")
        expected = self._expected(deal)
        self._check(set_, sorted(parts) == expected, f"all or nothing: {sorted(parts)} of the {deal}")
        consumer, of_queue = self._queues.consumers[deal.client], self._queues.rules[deal.queue]
        for one in deal.retired:
            if one.outcome in FINAL:
                self._queues.said(deal.queue, one.text, one.outcome)
                if self._done[deal] == 1:
                    of_queue.processed(consumer, one.text)

    def _expected(self, deal: Deal) -> list[Part]:
        """The messages that the set puts and takes if the transaction is committed."""
        name = link_name(deal.link.client.identity)
        taken = [(deal.queue, one.text, name) for one in deal.retired if one.outcome in FINAL]
        return sorted([*taken, *((queue, text, b"") for queue, text in deal.posts)])

    def _check(self, set_: str, holds: bool, what: str) -> None:
        self._queues.check_of_set(set_, holds, f"14.20 {what}")

    # in the end

    def unrest(self, routers: "dict[str, Router]", waits: set[str]) -> str:
        """The first transaction that is not over; empty if all are."""
        if waits:
            return ""
        for router in routers.values():
            transactions = router.node.transactions if router.alive else None
            if transactions is not None and (transactions._deciding or transactions._waiting or transactions._open):
                return f"14.20 liveness: {router.name} keeps transactions"
        return ""
