"""Breakages of how a subscriber joins and resumes: gates, backlog, evidence, maps (protocol 6)."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any
from unittest.mock import patch

import attrs

from router.edge.signs import SignsOfLife
from tests.mutants.mutant import KILLS, MOVING, NEWCOMERS, PARTITIONS, Method, mutant
from tests.router.mqtt.test_gates import test_the_gate_of_an_attach_that_is_over_holds_nothing_back as gate_over
from tests.topic import test_resuming, test_reused_tags
from topic.delivery.gates import UNBOUNDED
from topic.delivery.record import OPEN, QUEUED, SENT, HomeStream, Question, Record, State
from topic.directory.directory import Directory
from topic.directory.entry import LinkEntry
from topic.edge.delivery import EdgeDelivery
from topic.edge.edge import Edge
from topic.edge.subscriber import Gated, LocalSubscriber
from topic.edge.unconfirmed import Unconfirmed
from topic.home.audiences import Audiences
from topic.home.liveness import Liveness
from topic.home.resolution import Resolution
from topic.peers import HANDLERS, Peers
from topic.termini.attaches import Attaches
from topic.wire.segments import Segment

PUZZLED = PARTITIONS | {"routers": 3, "think": 0.05}
STALLING = {
    "routers": 2, "links": 0, "addresses": 1, "think": 0.01, "patience": 0.05, "restless": 2.0, "messages": 25,
    "window": 2, "delay": 0.001, "client_delay": 0.02, "pranks": ("stalled", "elsewhere"), "faults": ("partition",) * 3,
}  # fmt: skip
"""A router reads a publisher's frames long after the publisher has moved to the other side of a partition."""


@mutant(
    Resolution,
    "resolve",
    by="1",
    scenario=test_reused_tags.test_key_settled_before_an_attach_may_be_in_doubt_again,
)
def settled_before_without_evidence(original: Method) -> Method:
    """6.6 Evidence: a delivery settled before an attach may be in doubt at routers that its home cannot reach."""

    def broken(resolution: Resolution, router: str, stream: HomeStream, keys: list[bytes]) -> None:
        known = [key for key in keys if key in stream.settled_before]
        resolution.answer(router, stream, known)
        original(resolution, router, stream, [key for key in keys if key not in known])

    return broken


@mutant(Edge, "joined", by="5", scenario=gate_over)
def gate_of_earlier_attach_counts(original: Method) -> Method:
    """6.5 Gate: a home's gates do not count for a later attach that only other routers have announced."""

    def broken(edge: Edge, home: str, subscriber: LocalSubscriber, gated: dict[bytes, int]) -> None:
        with patch.object(Directory, "is_announced", lambda *_: False):
            original(edge, home, subscriber, gated)

    return broken


@mutant(Audiences, "_gate", by="1", **MOVING | {"subscribers": 3})
def no_gate(_: Method) -> Method:
    """6.5 Gate: a subscriber gets no later delivery while older ones that are not for it may follow."""

    def broken(
        joining: Audiences, stream: HomeStream, subscriber: LinkEntry, gating: object, *, unproven: bool
    ) -> None:
        """No gate stands."""

    return broken


@mutant(Audiences, "_gate", by="1", **NEWCOMERS)
def not_gated_by_doubt(gate: Method) -> Method:
    """6.5 Gate: for a subscriber that no router knew, records in doubt gate, too."""

    def broken(
        joining: Audiences, stream: HomeStream, subscriber: LinkEntry, gating: tuple[State, ...], *, unproven: bool
    ) -> None:
        gate(joining, stream, subscriber, tuple(set(gating) - {State.IN_DOUBT}), unproven=unproven)

    return broken


@mutant(Audiences, "_gate", by="1", scope="apart")
def not_gated_by_acceptances(gate: Method) -> Method:
    """6.5 Gate: records that are accepted and not settled gate, too."""

    def broken(
        joining: Audiences, stream: HomeStream, subscriber: LinkEntry, gating: tuple[State, ...], *, unproven: bool
    ) -> None:
        gate(joining, stream, subscriber, tuple(set(gating) - {State.ACCEPTED}), unproven=unproven)

    return broken


@mutant(Edge, "rehomed", by="45", **MOVING | {"think": 0.5})
def gates_outlive_their_home(_: Method) -> Method:
    """6.5 Gate: when a publisher gets a new home, its gates end."""

    def broken(edge: Edge, publisher: bytes, address: str) -> None:
        edge.reports.rehomed(publisher)

    return broken


@mutant(Audiences, "_needs_proof", by="1", **PUZZLED)
def backlog_without_evidence(_: Method) -> Method:
    """6.6 Evidence: a home that may be a zombie forwards a backlog only after a sign of its publisher's life."""

    def broken(joining: Audiences, stream: HomeStream, subscriber: LinkEntry) -> bool:
        joining._give_backlog(stream, subscriber.name)
        return False

    return broken


@mutant(
    Audiences, "_needs_proof", by="1",
    scenario=test_resuming.test_what_is_read_late_is_given_on_evidence_to_who_may_have_had_it_elsewhere,
)  # fmt: skip
def read_late_without_evidence(needs: Method) -> Method:
    """6.6 Evidence: such a home forwards no other delivery that the subscriber may have had elsewhere, either."""

    def broken(joining: Audiences, stream: HomeStream, subscriber: LinkEntry) -> bool:
        proof: bool = needs(joining, stream, attrs.evolve(subscriber, resumed=False))
        return proof

    return broken


@mutant(Liveness, "question", by="3", **PUZZLED)
def absence_without_evidence(doubt_: Method) -> Method:
    """6.6 Evidence: such a home does not call a delivery settled because it has no record of it."""

    def broken(evidence: Liveness, stream: HomeStream, doubt: Question) -> None:
        if isinstance(doubt, tuple):
            evidence._home.answer_question(stream, doubt, answered=True)
        else:
            doubt_(evidence, stream, doubt)

    return broken


@mutant(Liveness, "alive", by="13", **PUZZLED | STALLING)
def evidence_of_the_past(alive: Method) -> Method:
    """6.6 Evidence: only an echo that was sent after the question proves anything."""

    def broken(evidence: Liveness, stream: HomeStream, *, answered: bool) -> None:
        stream.echo_covers = len(stream.questions)
        alive(evidence, stream, answered=answered)

    return broken


@mutant(SignsOfLife, "ask", (SignsOfLife, "acknowledged"), by="13", **PUZZLED)
def acknowledgement_replaces_answer_to_echo(_: Method, __: Method) -> tuple[Method, Method]:
    """6.6 Evidence: if a client answers echoes, an acknowledgement by its machine is no sign of its life."""

    def ask(signs: SignsOfLife) -> None:
        signs._wanted = True
        signs._living.echoed.connection.prove(signs.acknowledged)

    def acknowledged(signs: SignsOfLife) -> None:
        if signs._wanted:
            signs._wanted = False
            signs._living.alive(True)

    return ask, acknowledged


@mutant(Audiences, "outcome_sent", by="1", scope="apart")
def accepted_gates_no_longer(_: Method) -> Method:
    """6.5 Gate: an accepted delivery gates until its publisher knows the outcome."""

    def broken(joining: Audiences, stream: HomeStream, records: list[Record]) -> None:
        joining.open_gates(stream, records)

    return broken


@mutant(Audiences, "_needs_proof", by="45", **MOVING)
def no_backlog(_: Method) -> Method:
    """6.3 Backlog: deliveries that await a subscriber are forwarded to the router where it attached."""

    def broken(joining: Audiences, stream: HomeStream, subscriber: LinkEntry) -> bool:
        return False

    return broken


@mutant(Audiences, "_needs_proof", by="1", **MOVING)
def backlog_not_waited_for(needs: Method) -> Method:
    """6.6 Evidence: while a backlog waits for evidence, nothing later of that publisher comes."""

    def broken(joining: Audiences, stream: HomeStream, subscriber: LinkEntry) -> bool:
        needs(joining, stream, subscriber)
        return False

    return broken


@mutant(
    EdgeDelivery, "joined_at", by="135", **MOVING | {"plain": 1.0, "delay": 0.05, "patience": 0.05, "subscribers": 4}
)
def delivered_unjoined(_: Method) -> Method:
    """5 Edge: a subscriber gets nothing from a home that has not joined it."""

    def broken(delivering: EdgeDelivery, stream: HomeStream) -> list[LocalSubscriber]:
        return list(delivering._at.meeting(stream.identity.address))

    return broken


@mutant(Attaches, "subscriber", by="6", **MOVING | {"delay": 0.2})
def answered_unjoined(attach: Method) -> Method:
    """6.7: a subscriber's attach is answered when all routers in contact have joined it."""

    def broken(attaching: Attaches, subscriber: LocalSubscriber, now: float) -> None:
        attach(attaching, subscriber, now)
        subscriber.unanswered.clear()

    return broken


@mutant(HANDLERS, Segment.JOINED, by="6", **MOVING | {"delay": 0.2})
def joined_for_an_older_attach(joined: Method) -> Method:
    """6.2: Joined counts only for the attach that it names."""

    def broken(peers: Peers, router: str, name: bytes, epoch: object, gated: dict[bytes, int]) -> None:
        subscriber = peers.edge.subscribers.get(name)
        if subscriber is not None:
            joined(peers, router, name, list(subscriber.epoch), gated)

    return broken


@mutant(Edge, "_leave_out", by="45", **MOVING)
def held_after_joined(_: Method) -> Method:
    """6.3 Backlog: deliveries that home has not forwarded for a subscriber when it joins it are not for it any more."""

    def broken(edge: Edge, subscriber: LocalSubscriber, records: list[Record]) -> None:
        """All stays AWAITING_HOME."""

    return broken


@mutant(Unconfirmed, "name", by="3", **KILLS)
def no_placeholder(name: Method) -> Method:
    """6.1: a key of the map that the router lacks is held as a placeholder until home has answered."""

    def broken(
        unconfirmed: Unconfirmed, subscriber: LocalSubscriber, said: Mapping[bytes, int], stream_of: Method
    ) -> Any:
        here = {key: state for key, state in said.items() if key in unconfirmed.records.by_key}
        return name(unconfirmed, subscriber, here, stream_of)

    return broken


@mutant(Unconfirmed, "_state", by="1", **MOVING)
def stated_outcomes_ignored(state_: Method) -> Method:
    """6.1: an outcome that the map states is recorded, and the delivery never comes again."""

    def broken(unconfirmed: Unconfirmed, subscriber: LocalSubscriber, record: Record, state: int) -> None:
        state_(unconfirmed, subscriber, record, 0)

    return broken


@mutant(Unconfirmed, "hold_for", by="1", **PARTITIONS | {"think": 0.05})
def held_delivered(hold: Method) -> Method:
    """4: a subscriber gets a delivery only by a Forward of the current epoch and contact."""

    def broken(unconfirmed: Unconfirmed, subscriber: LocalSubscriber, records: Iterable[Record]) -> None:
        held = [record for record in records if record.locals.get(subscriber) in OPEN and record.message is not None]
        hold(unconfirmed, subscriber, records)
        for record in held:
            record.locals[subscriber] = QUEUED
            subscriber.ready.append(record)

    return broken


@mutant(Unconfirmed, "hold_for", by="5", **MOVING)
def sent_by_the_zombie(hold: Method) -> Method:
    """6.8: a delivery that the map lacks comes as an ordinary transfer, even if it was sent on the older link."""

    def broken(unconfirmed: Unconfirmed, subscriber: LocalSubscriber, records: Iterable[Record]) -> None:
        hold(unconfirmed, subscriber, [record for record in records if record.locals.get(subscriber) != SENT])

    return broken


@mutant(Audiences, "adopt", by="12", **PARTITIONS)
def unknown_not_adopted(_: Method) -> Method:
    """6.4 Adoption: a resuming subscriber that home does not know gets the deliveries in doubt."""

    def broken(joining: Audiences, subscriber: LinkEntry) -> None:
        """Home takes it for a new subscriber."""

    return broken


@mutant(Liveness, "question", by="1", scenario=test_resuming.test_evidence_counts_from_the_last_attach_on)
def asked_again_counts_as_asked(doubt_: Method) -> Method:
    """6.6 Evidence: if a router repeats a question, only a sign of life after the repetition answers it."""

    def broken(evidence: Liveness, stream: HomeStream, doubt: Question) -> None:
        if doubt in stream.questions:
            evidence.ask(stream)
        else:
            doubt_(evidence, stream, doubt)

    return broken


@mutant(LocalSubscriber, "open_gate", by="1", **PUZZLED | STALLING)
def gate_opens_unsorted(_: Method) -> Method:
    """11: a gate that opens lets deliveries through in order of `n`, also an older one that was put off."""

    def broken(subscriber: LocalSubscriber, publisher: bytes) -> list[Record]:
        return list(subscriber.gated.pop(publisher).records)

    return broken


@mutant(
    Gated, "take", by="1",
    scenario=test_reused_tags.test_records_past_a_later_gate_do_not_overtake_a_withheld_record,
)  # fmt: skip
def later_gate_lets_through_unsorted(_: Method) -> Method:
    """6.5 Gate: the deliveries that a later gate lets through come in order of n, too."""

    def broken(gate: Gated, since: int, till: int = UNBOUNDED) -> list[Record]:
        taken = [record for record in gate.records if since <= record.n < till]
        gate.records = deque(record for record in gate.records if record not in taken)
        return taken

    return broken


@mutant(
    Edge, "_first_withheld", by="1",
    scenario=test_reused_tags.test_record_withheld_before_its_backlog_comes_after_it,
)  # fmt: skip
def admit_ignores_older_withheld_record(_: Method) -> Method:
    """6.5 Gate: a delivery that a gate lets through waits behind an older record that waits for its key."""

    def broken(edge: Edge, subscriber: LocalSubscriber, publisher: bytes) -> int:
        return UNBOUNDED

    return broken


@mutant(
    Edge, "rehomed", by="1",
    scenario=test_reused_tags.test_records_behind_a_withheld_one_of_a_plain_publisher_come_again_in_order,
)  # fmt: skip
def dropped_record_holds_back_no_later_ones(rehomed: Method) -> Method:
    """6.5 Gate: if a record that waits for its key is dropped at the end of a life, the later ones are, too."""

    def broken(edge: Edge, publisher: bytes, address: str) -> None:
        for subscriber in edge._at.meeting(address):
            if publisher in subscriber.gated:
                subscriber.gated[publisher].withheld = UNBOUNDED
        rehomed(edge, publisher, address)

    return broken


@mutant(Attaches, "contact", by="6", **MOVING | {"faults": ("flap", "cut") * 6, "delay": 0.3})
def later_contacts_not_awaited(_: Method) -> Method:
    """6.7: a router that comes into contact while an attach waits has to join the subscriber, too."""

    def broken(attaching: Attaches, router: str, now: float) -> None:
        """Only the earlier contacts count."""

    return broken
