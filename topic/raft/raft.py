"""One replica of a set of routers that agree on one log: Raft, without I/O (protocol 13; Ongaro, *Consensus*, 2014).

The shell that drives a replica

1. reports events to it: `connect`, `disconnect`, `receive`, `persisted`, `tick`, with the time in seconds;
2. calls `flush` when no more events are at hand, and performs the actions that it returns, in order;
3. calls `tick` at `deadline`;
4. writes each `Persist` in one transaction, in order, then calls `persisted`. The replica waits for no write;
5. applies the entries of `Committed`, and calls `digested` at certain indices, the same ones at each replica;
6. may make an `Agreed` state the snapshot: it keeps the state at this index, calls `compact`, and writes the state with
  the next `Persist`.

Contacts take the place of heartbeats. The sender of a `Lead` is a replica's leader until it sends `Resigned`, or until
their contact ends. So a set in which nothing happens sends nothing. The states, in Raft's words:

| state | leaves it when | for |
| --- | --- | --- |
| follower | its timer ends, and it has no leader | pre-candidate |
| pre-candidate | a majority would vote for it | candidate |
| candidate | a majority has voted for it, its own vote is on its disk | leader |
| leader | no majority is in contact; it is no voter any more | follower |
| each | it learns of a later term | follower |

A replica without a leader always has a timer. `topic/raft/messages.py` explains each message.
"""

import math
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Any, ClassVar, Final

import attrs

from topic.errors import BreachError
from topic.raft import messages as say
from topic.raft.configuration import Configuration, Replica
from topic.raft.digests import Digests
from topic.raft.errors import NotLeaderError, NotReadyError
from topic.raft.leadership import Leadership
from topic.raft.life import NO_LIFE, SetLife
from topic.raft.limits import RaftLimits
from topic.raft.log import Entry, RaftLog, Snapshot
from topic.raft.messages import (
    NO_PIECES,
    Action,
    Agreed,
    Alarm,
    Body,
    Committed,
    Envelope,
    Hard,
    Led,
    Piece,
    Read,
    Restore,
    Send,
    SetAside,
    StagedPiece,
    StoreContent,
)
from topic.raft.storage import Storage
from topic.raft.stores import KnownStore, KnownStores

BEGIN: Final = 1
"""The log index of the entry with the first voters. This entry is decided when all of them have it."""


MOST_BACK_OFF: Final = 16
"""The largest factor by which lost elections lengthen the timer of a voter."""


class RaftRole(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@attrs.frozen(slots=True)
class _Election:
    """An election in which this replica is a candidate."""

    is_pre: bool
    """Whether the replica is still asking for pre-votes, before it asks for votes."""
    granted: set[Replica]


class Raft:
    """One replica of a set. In one term at most one replica leads. In one life, all replicas decide the same entry for
    an index."""

    def __init__(
        self,
        me: Replica,
        routers: Collection[str],
        ring: Sequence[str],
        mapping: bytes,
        content: StoreContent,
        limits: RaftLimits,
        draw: Callable[[], float],
        read_clock: Callable[[], int],
        now: float,
        copies: Sequence[str] = (),
    ) -> None:
        """`routers`: all routers of the mesh. `ring`: the routers with which the set begins. `copies`: the routers that
        then keep an asynchronous copy. `content`: what the store has; the shell has the state at its snapshot. `draw`:
        returns a random number from 0 to 1. `read_clock`: returns a hybrid clock above all clocks that this router
        knows. Raises ValueError if the set began with another map of names."""
        if content.hard.life and content.hard.mapping != mapping:
            what = "the configuration assigns queues to replica sets otherwise than when this set began"
            raise ValueError(f"{what}: restore the former assignment")
        self.me = me
        self.hard = content.hard
        self.log = RaftLog(content.entries, content.snapshot)
        self.stores = KnownStores(me, routers, ring, mapping, copies)
        self.leadership: Leadership | None = None
        """The leadership of this replica; None while it does not lead."""
        self.why_aside = ""
        """Why this replica's store no longer takes part; empty while it takes part."""
        self.leaves = False
        """Whether this router is about to stop."""
        self._begins_anew = False
        """Whether an operator has asked for the life of this store, in place of a life that is not in effect."""
        self.deadline = now + limits.boot
        """When `tick` is due; infinite if never."""
        self._limits = limits
        self._draw = draw
        self._read_clock = read_clock
        self._election: _Election | None = None
        """The election in which this replica stands; None while it does not."""
        self._elections_lost = 0
        """The number of elections that this replica has lost since any replica last led."""
        self._leader: Replica | None = None
        """As a follower: the member that leads. None if this replica leads, or knows no leader."""
        self._matched = 0
        """As a follower: the last index up to which this log is known to be equal to the leader's."""
        self._acknowledged = 0
        """As a follower: the last index that this replica has acknowledged to the leader."""
        self._staging: Piece | None = None
        """The last piece of a leader's snapshot that this replica has stored; None if it has stored none. The index of
        this snapshot is higher than the index of each entry that is decided here."""
        self._digests = Digests()
        self._storage = Storage(self.hard, self.log)
        self._outbox: list[Action] = []
        self._applied = self.log.snapshot.index
        self._led: Led | None = None
        """The leader that this replica has last reported to the shell."""
        if self.hard.begun:
            self._take_effect()

    @property
    def role(self) -> RaftRole:
        if self.leadership is not None:
            return RaftRole.LEADER
        if self._election is not None:
            return RaftRole.PRE_CANDIDATE if self._election.is_pre else RaftRole.CANDIDATE
        return RaftRole.FOLLOWER

    @property
    def leader(self) -> Replica | None:
        """The member that leads; None if this replica knows none."""
        return self.me if self.leadership is not None else self._leader

    # The methods from here on take events of contacts.

    def connect(self, router: str, now: float) -> None:
        """Begin a contact with the router. Messages of earlier contacts do not arrive any more."""
        self.stores.connect(router)
        if not self.why_aside:
            self._greet(router)

    def disconnect(self, router: str, now: float) -> None:
        """End a contact with the router. Messages under way are lost."""
        member = self.stores.disconnect(router)
        self._storage.drop(router)
        if member is not None and self.leadership is not None:
            self.leadership.disconnect(member)
        if member is not None and self._election is not None:
            self._election.granted.discard(member)  # a leader needs a majority that is in contact
        if self._leader is not None and self._leader.router == router:
            self._follow_nobody(now)
        if self.leadership is not None and not self.leadership.has_majority:
            self.resign(now)

    def _greet(self, router: str = "") -> None:
        """Send `Greeting` to `router`; to all routers in contact if `router` is empty. A greeting names the life that
        the disk has, so the replica sends none while the disk lacks the present life."""
        stored = self._storage.hard
        if stored.life != self.hard.life:
            return
        for name in (router,) if router else self.stores.routers:
            known = self.stores.get(name)
            to = known.member if known is not None else Replica(name, b"")
            greeting = say.Greeting(stored.begun, self.stores.ring, self.stores.mapping, self.leaves)
            self._outbox.append(Send(Envelope(stored.life, self.me, to, greeting)))

    def receive(self, envelope: Envelope, now: float) -> None:
        """Take a message of a router in contact. Messages come in the order in which that router sent them. Raises
        BreachError if no sound replica would send this message; the caller then drops the contact."""
        sender, body = envelope.sender, envelope.body
        if isinstance(body, say.Greeting):
            known = KnownStore(sender, envelope.life, *attrs.astuple(body, recurse=False))
            if self.why_aside:
                # The router greets only once, so this replica keeps the greeting for the replica that replaces it.
                self.stores.learn(known)
            else:
                self._take_greeting(known, now)
            self._tell_of_latest_life()
        elif self.why_aside:
            return
        elif self.stores.has(sender) and envelope.receiver == self.me:
            if isinstance(body, say.Propose):
                self._take_proposal(envelope.life, body)
            elif self._is_of_my_life(envelope):
                if isinstance(body, say.Stored | say.Lacking | say.Staged):
                    if self.leadership is not None:
                        self.leadership.receive(sender, body)
                else:
                    self._HANDLERS[type(body)](self, sender, body, now)

    def _take_greeting(self, known: KnownStore, now: float) -> None:
        if self.stores.is_replaced(known):  # no message to or from the router's former store counts any more
            self.disconnect(known.member.router, now)
            self.connect(known.member.router, now)
        is_new = self.stores.learn(known)
        if not self.stores.is_heard(known):
            self._alarm(f"router {known.member.router} has another map of queues to sets")
            return
        if known.ring != self.stores.ring and not (known.begun or self.hard.begun):
            self._alarm(f"the set does not begin: router {known.member.router} has other voters in its topology")
        if known.begun and known.life != self.hard.life and self.hard.life:
            if not self.hard.begun or known.life > self.hard.life:
                self.set_aside(f"router {known.member.router} has another life of the set, and that life has begun")
            return
        self._begin()
        if not is_new:
            self._try_effect()
            return
        self._go_on_beginning(known)
        member = known.member
        if self.leadership is not None:
            self.leadership.connect(member)
        elif self._election is not None:
            if member in self.log.configuration.voters:
                self._ask_for_vote(member, self._election)
        elif self._leader is None and all(self.stores.has(voter) for voter in self.log.configuration.voters):
            self.deadline = min(self.deadline, now + self._first_wait())

    def _tell_of_latest_life(self) -> None:
        """Send `Outdated` with the latest life to the routers whose stores have an earlier life. These routers may be
        out of contact with all routers of the latest life (13.2)."""
        latest = self.stores.latest_life
        for known in self.stores.all():
            if NO_LIFE < known.life < latest:
                self._outbox.append(Send(Envelope(latest, self.me, known.member, say.Outdated(0))))

    def _is_of_my_life(self, envelope: Envelope) -> bool:
        """Whether the message is for the life of this store.

        A message of a later life makes this store void. A store without a life accepts the life of a leader's message,
        unless a router in contact has told of a later life that is in effect.
        """
        if envelope.life < self.hard.life:
            self._greet(envelope.sender.router)
            return False
        if envelope.life > self.hard.life:
            if self.hard.life:
                self.set_aside(f"router {envelope.sender.router} tells of a later life of the set")
                return False
            if not isinstance(envelope.body, say.Lead | say.Append):
                return False
            if envelope.life < self.stores.latest_life:
                return False
            self.hard = Hard(envelope.life, self.stores.mapping)
        if not self.hard.begun:  # elections exist only in a life that is in effect
            self._take_effect()
        return True

    def set_aside(self, why: str) -> None:
        """Stop taking part, because this store is void or cannot be trusted."""
        self._stop_leading()
        self.why_aside = why
        self._election, self._leader, self.deadline = None, None, math.inf
        self._outbox.append(SetAside(why))

    def follow_ring(self, ring: Sequence[str], copies: Sequence[str] = ()) -> None:
        """Take from another topology the routers with which the set is to begin: the routers of its ring, and the
        routers that keep an asynchronous copy. Once the set has begun, its log has these routers, and only `choose`
        changes them."""
        self.stores.ring, self.stores.copies = tuple(ring), tuple(copies)
        if not self.hard.begun:
            self._greet()

    def _alarm(self, why: str) -> None:
        self._outbox.append(Alarm(why))

    # The methods from here on are about the beginning of a set (13.2).

    def _begin(self, *, anew: bool = False) -> bool:
        """Begin the set if this is the router that has to begin it, and all routers that are needed are in contact."""
        configuration = self.stores.first_voters(anew=anew)
        if configuration is None or self.hard.begun or (self.hard.life and not anew):
            return False
        self._accept(self._new_life(), configuration, anew=anew)
        for voter in configuration.voters:
            if voter != self.me:
                self._send(voter, say.Propose(configuration, anew))
        return True

    def begin_anew(self) -> None:
        """Begin the set at an operator's request, although some stores have accepted a life that never came into
        effect, or a router is away.

        A second request proposes the same life again, as long as all voters may accept it. Reason: this life may still
        come into effect. If a third life were proposed meanwhile, the stores that accept it would become void.

        If this store has the life of a leader that is gone, and no entry, set the store aside. The next store can begin
        the set.

        Raises NotReadyError if a router of the ring is not in contact, or the set has begun.
        """
        if self.hard.begun and not self.log.last and self.leader is None:
            self.set_aside("this store has no entry, and an operator begins the set anew")
            return
        if why := "it has begun" if self.hard.begun else self.stores.why_not_anew():
            raise NotReadyError(why)
        if self._begins_anew and self.stores.may_accept(self.hard.life, self.log.configuration):
            for known in self.stores.all():
                self._propose_to(known)
            return
        begins = self._begin(anew=True)
        assert begins

    def _go_on_beginning(self, known: KnownStore) -> None:
        """Go on with the beginning of the set, because a router has announced its store. The announced store may still
        lack the proposed life, or may be the last store that had to accept the life."""
        if not self.hard.begun and self.hard.life:
            self._propose_to(known)
            self._try_effect()

    def _propose_to(self, known: KnownStore) -> None:
        """Send the life that this store has accepted to a voter whose store lacks it.

        The voter may have got an earlier proposal and dropped it. A voter accepts a proposal only from a store that it
        knows, and learns of this store only when this store's disk has the life.
        """
        lacks = not known.life or (self._begins_anew and known.life < self.hard.life)
        if lacks and known.member in self.log.configuration.voters:
            self._send(known.member, say.Propose(self.log.configuration, self._begins_anew))

    def _try_effect(self) -> None:
        is_accepted = self._storage.hard.life == self.hard.life != NO_LIFE
        if is_accepted and not self.hard.begun and self.stores.is_in_effect(self.hard, self.log.configuration):
            self._take_effect()

    def _take_proposal(self, life: SetLife, proposal: say.Propose) -> None:
        if self.me not in proposal.configuration.voters or self.hard.begun:
            return
        if not self.hard.life or (proposal.anew and life > self.hard.life):
            self._accept(life, proposal.configuration, anew=proposal.anew)

    def _new_life(self) -> SetLife:
        """The name of a life that begins here now. It is higher than the names of all lives that this router knows."""
        return SetLife(self._read_clock(), self.me.router)

    def _accept(self, life: SetLife, configuration: Configuration, *, anew: bool) -> None:
        self.hard = Hard(life, self.stores.mapping)
        self._begins_anew = anew
        self.log.begin(Entry(0, configuration=configuration))

    def _take_effect(self) -> None:
        self.hard = attrs.evolve(self.hard, begun=True)
        self.log.commit = max(self.log.commit, min(BEGIN, self.log.last))

    def recover(self, now: float) -> None:
        """Make this store alone the set, in a new life, at an operator's request. Entries that only other stores have
        are lost. Raises NotLeaderError if a replica leads, or if this store has no entry."""
        if self.leader is not None:
            raise NotLeaderError(f"router {self.leader.router} leads this set: recovery is refused", self.leader)
        if not (self.hard.begun and self.log.last):
            raise NotLeaderError("the store of this router has never been part of the set", None)
        self._enter(self.hard.term + 1, None)
        self._drop_pieces()  # the pieces have entries that the new life lacks
        self._digests = Digests()  # some digests are of states with entries that the new life lacks
        self.hard = attrs.evolve(self.hard, life=self._new_life())
        alone = attrs.evolve(self.log.configuration, voters=(self.me,), learners=())
        self.log.append([Entry(self.hard.term, configuration=alone)])
        self._stand(now)

    # The methods from here on are about elections (13.3).

    def tick(self, now: float) -> None:
        """Do what is due. The shell calls this at `deadline` or later."""
        if now < self.deadline or self.why_aside:
            return
        if self.leadership is not None:
            self.leadership.give_up_handing_over(now)
            if self._disk_hangs(now):
                self.leadership.hand_over_to_best(now)
        elif not self.hard.begun:
            self._begin()
            self._try_effect()
        elif self.leader is None:
            self._pre_stand(now)
        self._set_deadline(now)

    def _set_deadline(self, now: float) -> None:
        if self.leadership is not None:
            due = min(self.leadership.deadline, self._storage.oldest() + self._limits.dead)
            self.deadline = due if due > now else now + self._limits.place
        elif self.leader is not None:
            self.deadline = math.inf
        elif self.deadline <= now:
            self._restart_timer(now)

    def _first_wait(self) -> float:
        """The number of seconds that this voter waits before it first stands for election.

        A voter earlier in the ring waits less, so that one voter stands before the others. A voter whose router is
        about to stop waits longer than all others. (If all routers are about to stop, they end before this wait is
        over.)
        """
        ring = self.log.configuration.ring or self.stores.ring
        place = ring.index(self.me.router) if self.me.router in ring else len(ring)
        return self._limits.place * (place + self._draw() / 2) * self._back_off() + self.leaves * self._limits.dead

    def _back_off(self) -> int:
        """The factor by which timers are lengthened. It doubles with each lost election. So in the end all messages of
        an election arrive before another voter's timer ends, however slow the links are."""
        return min(1 << self._elections_lost, MOST_BACK_OFF)

    def _disk_hangs(self, now: float) -> bool:
        return now >= self._storage.oldest() + self._limits.dead

    def _may_stand(self, now: float) -> bool:
        return self.hard.begun and self.log.may_stand(self.me) and not self._disk_hangs(now)

    def _pre_stand(self, now: float) -> None:
        """Ask the voters whether they would vote for this replica. The replica enters a new term only if a majority
        would, because a new term disturbs the other replicas."""
        if self._may_stand(now):
            self._call(_Election(True, {self.me}))
            self._count_votes(now)

    def _stand(self, now: float) -> None:
        self._enter(self.hard.term + 1, self.me)
        self._leader = None
        self._call(_Election(False, set()))
        self._restart_timer(now)
        self._elections_lost += 1  # the election counts as lost until this replica has won it

    def _call(self, election: _Election) -> None:
        self._election = election
        for voter in self.log.configuration.voters:
            if voter != self.me and self.stores.has(voter):
                self._ask_for_vote(voter, election)

    def _ask_for_vote(self, voter: Replica, election: _Election) -> None:
        last, last_term = self.log.last, self.log.last_term
        if election.is_pre:
            self._send(voter, say.PreVote(self.hard.term + 1, last, last_term))
        else:
            self._send_when_stored(voter, say.Vote(self.hard.term, last, last_term))

    def _take_granted(self, voter: Replica, term: int, now: float, *, is_pre: bool) -> None:
        """Count a vote, or a pre-vote, that a voter has granted in this term."""
        if self._election is not None and self._election.is_pre is is_pre and term == self.hard.term + is_pre:
            self._election.granted.add(voter)
            self._count_votes(now)

    def _count_votes(self, now: float) -> None:
        assert self._election is not None
        if self.log.configuration.is_majority(self._election.granted):
            if self._election.is_pre:
                self._stand(now)
            else:
                self._win(now)

    def _take_pre_vote(self, sender: Replica, body: say.PreVote, now: float) -> None:
        if body.term <= self.hard.term:
            self._send(sender, say.Outdated(self.hard.term))
        elif self.leader is None and self.log.is_no_newer_than(body.last, body.last_term):
            self._send(sender, say.PreVoted(body.term))

    def _take_pre_voted(self, sender: Replica, body: say.PreVoted, now: float) -> None:
        self._take_granted(sender, body.term, now, is_pre=True)

    def _take_vote(self, sender: Replica, body: say.Vote, now: float) -> None:
        """Grant or refuse a vote. A replica votes even if, as far as it knows, it is no voter, because it may have
        become one without knowing (Raft, 4.2.2)."""
        if body.term < self.hard.term:
            self._send(sender, say.Outdated(self.hard.term))
            return
        self._notice_term(body.term, now)
        is_free = self.hard.vote in (None, sender) and self.leader is None
        if is_free and self.log.is_no_newer_than(body.last, body.last_term):
            self.hard = attrs.evolve(self.hard, vote=sender)
            self._restart_timer(now)
            self._send_when_stored(sender, say.Voted(self.hard.term))

    def _take_voted(self, sender: Replica, body: say.Voted, now: float) -> None:
        self._take_granted(sender, body.term, now, is_pre=False)

    def _restart_timer(self, now: float) -> None:
        self.deadline = now + self._limits.election * (1 + self._draw()) * self._back_off()

    def _notice_term(self, term: int, now: float) -> None:
        """If another replica is in a later term, enter that term. At first, this replica knows no leader of the
        term."""
        if term > self.hard.term:
            self._stop_leading()
            if self._leader is not None:
                # The former leader may be in contact only with this replica, so no other replica tells it the term.
                self._send(self._leader, say.Outdated(term))
            self._enter(term, None)
            self._follow_nobody(now)

    def _enter(self, term: int, vote: Replica | None) -> None:
        """Enter a later term. Reset the indices of the comparison with the leader's log, because this log has not been
        compared with the log of the new term's leader yet."""
        assert term > self.hard.term
        self.hard = attrs.evolve(self.hard, term=term, vote=vote)
        self._matched = self._acknowledged = 0

    def _take_outdated(self, sender: Replica, body: say.Outdated, now: float) -> None:
        self._notice_term(body.term, now)

    def _follow_nobody(self, now: float) -> None:
        self._election = self._leader = None
        self.deadline = now + self._first_wait()

    def _follow(self, leader: Replica, term: int, now: float) -> bool:
        """Follow the leader of this term, which has sent a message. Returns False if this replica knows a later term
        and so does not follow it."""
        if term < self.hard.term:
            self._send(leader, say.Outdated(self.hard.term))
            return False
        self._notice_term(term, now)
        if self.leader not in (None, leader):
            raise BreachError(f"router {leader.router} leads in term {term}, as router {self.leader} does")
        self._election, self._leader, self.deadline = None, leader, math.inf
        self._elections_lost = 0
        return True

    def _take_resigned(self, sender: Replica, body: say.Resigned, now: float) -> None:
        if sender == self._leader and body.term == self.hard.term:
            self._follow_nobody(now)

    # The methods from here on are about leadership.

    def _win(self, now: float) -> None:
        self._election, self._elections_lost = None, 0
        self.leadership = Leadership(self.me, self.hard.life, self.hard.term, self.log, self.stores, self._limits, now)
        self._set_deadline(now)

    def resign(self, now: float) -> None:
        """Stop leading. This replica leads again only after it wins another election."""
        self._stop_leading()
        self._follow_nobody(now)

    def lead_anew(self, after: int, now: float) -> None:
        """Stop leading, and lead again only in a term after this one."""
        self._stop_leading()
        if after > self.hard.term:
            self._enter(after, None)
        self._follow_nobody(now)

    def _stop_leading(self) -> None:
        if self.leadership is not None:
            self.leadership.resign()
            self._send_for_leadership(self.leadership)
            self.leadership = None

    def _send_for_leadership(self, leadership: Leadership) -> None:
        for member, body in leadership.messages:
            self._send(member, body)
        leadership.messages.clear()

    def _leading(self) -> Leadership:
        if self.leadership is None:
            raise NotLeaderError("this replica is not the leader", self.leader)
        return self.leadership

    def propose(self, data: Sequence[bytes]) -> int:
        """Append entries to the log, so that the set decides them. Returns the index of the first one.

        Raises NotLeaderError; BusyError while the leadership changes, or if too many bytes wait for the disks.
        """
        return self._leading().propose(list(data))

    def configure(self, configuration: Configuration, now: float) -> int:
        """Change the members. Returns the log index of the change.

        Raises NotLeaderError. Raises BusyError if an earlier change, or this leader's first entry, is not decided yet,
        or if a majority of the new voters is not in contact. Raises ValueError if more than one voter would change.
        """
        return self._leading().configure(configuration, now)

    def choose(self, ring: Sequence[str], now: float, copies: Sequence[str] = ()) -> int:
        """At an operator's request, make the routers of `ring` the ring, and let the routers of `copies` keep an
        asynchronous copy. Returns the log index of the change.

        Raises NotLeaderError, and BusyError as `configure` does.
        """
        return self.configure(attrs.evolve(self.log.configuration, ring=tuple(ring), copies=tuple(copies)), now)

    def hand_over(self, member: Replica, now: float) -> None:
        """Hand the leadership over to this voter. Until the voter has all entries and has won an election, this leader
        proposes nothing.

        Raises NotLeaderError. Raises ValueError unless the member is another voter in contact.
        """
        self._leading().hand_over(member, now)
        self._set_deadline(now)

    def leave(self) -> None:
        """Tell all routers in contact that this router is about to stop, so that they do not hand their leadership over
        to it."""
        self.leaves = True
        if not self.why_aside:
            self._greet()

    def _take_stand_now(self, sender: Replica, body: say.StandNow, now: float) -> None:
        if sender == self._leader and body.term == self.hard.term and self._may_stand(now):
            self._stand(now)

    # The methods from here on are about replication (13.4).

    def _take_lead(self, sender: Replica, body: say.Lead, now: float) -> None:
        if not self._follow(sender, body.term, now):
            return
        if not self.log.has(body.index, body.index_term):
            index = self.log.latest_up_to(body.index, body.index_term)
            if index is None:
                raise BreachError(f"router {sender.router} leads without entry {self.log.commit}, which is decided")
            self._drop_old_pieces()
            self._send(sender, say.Lacking(body.term, index, self.log.term(index), *self._parts))
            return
        self._match(body.index, body.commit)
        self._acknowledge(sender)

    def _take_append(self, sender: Replica, body: say.Append, now: float) -> None:
        if self._follow(sender, body.term, now):
            last = body.previous + len(body.entries)
            if not self.log.has(body.previous, body.previous_term):
                raise BreachError(f"router {sender.router} appends after entry {body.previous}, which is missing here")
            if self.log.commit > body.previous and not self._agrees(body):
                raise BreachError(f"router {sender.router} replaces entries that are decided")
            self.log.merge(body.previous, body.entries)
            self._match(last, body.commit)

    def _agrees(self, body: say.Append) -> bool:
        """Whether the message has the same entries as this log, as far as these are decided here."""
        decided = body.entries[: self.log.commit - body.previous]
        return all(self.log.has(index, entry.term) for index, entry in enumerate(decided, body.previous + 1))

    def _match(self, index: int, commit: int) -> None:
        """This log is equal to the leader's up to this index. Entries after it may come from another leader, so this
        leader's commit index does not decide them."""
        self._matched = max(self._matched, index)
        self.log.commit = max(self.log.commit, min(commit, self._matched))

    def _acknowledge(self, leader: Replica) -> None:
        """Tell the leader which entries the disk has.

        This waits until the disk also has the present term. A replica that forgot the term in a crash would obey the
        leader of an earlier one.
        """
        self._acknowledged = min(self.log.stable, self._matched)
        # Drop an earlier message that still waits. It has a lower index, and would otherwise arrive after this one.
        self._storage.supersede(say.Stored)
        body = say.Stored(self.hard.term, self._matched, self._acknowledged)
        if self._storage.hard.term == self.hard.term:
            self._send(leader, body)
        else:
            self._send_when_stored(leader, body)

    def _take_distrust(self, sender: Replica, body: say.Distrust, now: float) -> None:
        if sender == self._leader and body.term == self.hard.term:
            self.set_aside(f"this store has lost entries that it had acknowledged to router {sender.router}")

    # The methods from here on are about snapshots (13.6).

    def compact(self, index: int) -> None:
        """Replace the entries up to an applied index by a snapshot. The shell has kept the state at this index. Raises
        ValueError if the index is not applied yet, or is before the present snapshot."""
        if not self.log.snapshot.index <= index <= self._applied:
            raise ValueError(f"index {index}, expected {self.log.snapshot.index} to {self._applied}")
        self.log.compact(index)
        if self.leadership is not None:
            self.leadership.compacted()

    def read(self, read: Read, data: bytes, end: bytes, is_last: bool) -> None:
        """Take a piece that the shell has read for a `Read`. `end`: as in `Piece`. If the piece is of a former
        snapshot, the leader does not send it."""
        if self.leadership is not None:
            self.leadership.read(read, data, end, is_last)

    @property
    def _parts(self) -> tuple[int, int, int, bytes]:
        """The fields of `Lacking` about the snapshots that this replica has, whole or in part."""
        own, piece = self.log.snapshot.index, self._staging
        return (own, 0, 0, b"") if piece is None else (own, piece.snapshot.index, piece.place + 1, piece.end)

    def _take_piece(self, sender: Replica, body: Piece, now: float) -> None:
        """Store a piece of the leader's snapshot on the disk, until all pieces have come. Until then this replica keeps
        its former state. If the leader or the contact is lost, the pieces stay, because a later leader may continue
        with the pieces of a later snapshot."""
        if not self._follow(sender, body.term, now):
            return
        snapshot, former = body.snapshot, self._staging
        if body.place and (former is None or former.place + 1 != body.place or former.snapshot.index > snapshot.index):
            raise BreachError(f"router {sender.router} sends piece {body.place} of a snapshot out of order")
        if snapshot.index <= self.log.commit:
            raise BreachError(f"router {sender.router} sends a snapshot of entries that are decided here")
        self._staging = attrs.evolve(body, data=b"")
        self._storage.stage(StagedPiece(snapshot.index, body.place, body.data))
        if body.is_last:
            self._install(snapshot)
        else:
            self._send_when_stored(sender, say.Staged(body.term, snapshot.index, body.place))

    def _drop_old_pieces(self) -> None:
        """Drop the pieces if the entries up to their snapshot's index are decided here. This replica then no longer
        needs the snapshot."""
        if self._staging is not None and self._staging.snapshot.index <= self.log.commit:
            self._drop_pieces()

    def _drop_pieces(self) -> None:
        if self._staging is not None:
            self._staging = None
            self._storage.stage(NO_PIECES)

    def _install(self, snapshot: Snapshot) -> None:
        self.log.install(snapshot)
        self._staging = None
        self._matched = snapshot.index

    # The methods from here on are about digests of the state (13.6).

    def digested(self, index: int, digest: bytes) -> None:
        """Compare the digest of this replica's state, after the entries up to the index, with the digests of other
        replicas."""
        self._digests.have(index, digest)
        if self.leadership is not None:
            self._count_digest(self.me, index, digest)
        elif self._leader is not None:
            self._send(self._leader, say.Digest(self.hard.term, index, digest))
        self._compare_digests(index)

    def _take_digest(self, sender: Replica, body: say.Digest, now: float) -> None:
        if body.term != self.hard.term:
            return
        if sender == self._leader:
            self._digests.learn_right(body.index, body.digest)
            self._compare_digests(body.index)
        elif self.leadership is not None:
            self._count_digest(sender, body.index, body.digest)

    def _count_digest(self, member: Replica, index: int, digest: bytes) -> None:
        assert self.leadership is not None
        was_right = self._digests.right(index)
        is_decided = self._digests.count(member, index, digest, self.log.configuration)
        if is_decided is False:
            self._alarm(f"no majority has the same state at index {index}")
        right = self._digests.right(index)
        for to in [member] if was_right is not None else self.leadership.progress:
            if right is not None and to != self.me and self.stores.has(to):
                self._send(to, say.Digest(self.hard.term, index, right))
        self._compare_digests(index)

    def _compare_digests(self, index: int) -> None:
        is_right = self._digests.is_right(index)
        if is_right is False and not self.why_aside:
            self.set_aside(f"the state at index {index} differs from the state of the other replicas")
        elif is_right:
            self._outbox.append(Agreed(index))

    # The methods from here on are about the disk.

    def persisted(self, number: int, now: float) -> None:
        """The disk has finished the write with this number and all earlier ones."""
        former = self._storage.hard
        self._storage.finish(number)
        stored = self._storage.hard
        if (former.life, former.begun) != (stored.life, stored.begun):
            self._greet()
        if self.why_aside:
            return
        if former.life != stored.life:
            for known in self.stores.all():
                self._go_on_beginning(known)
        self._try_effect()
        if stored.vote == self.me:
            self._take_granted(self.me, stored.term, now, is_pre=False)
        if self._leader is not None and min(self.log.stable, self._matched) > self._acknowledged:
            self._acknowledge(self._leader)
        self._set_deadline(now)

    def _send(self, to: Replica, body: Body) -> None:
        self._outbox.append(Send(Envelope(self.hard.life, self.me, to, body)))

    def _send_when_stored(self, to: Replica, body: Body) -> None:
        """Send this message only when the disk has the present values of `Hard` and the present log."""
        self._storage.hold(Envelope(self.hard.life, self.me, to, body), self.hard)

    # The methods from here on make the actions for the shell.

    def flush(self, now: float) -> list[Action]:
        """Take the actions that follow from the events since the last call, in order."""
        if self.leadership is not None:
            self._flush_leadership(self.leadership, now)
        self._drop_old_pieces()
        persist = self._storage.write(self.hard, now) if not self.why_aside else None
        if persist is not None:
            self._outbox.append(persist)
            self._set_deadline(now)
        if self.leadership is not None:
            self._outbox += self.leadership.reads
            self.leadership.reads.clear()
        if not self.why_aside:
            self._outbox.extend(Send(envelope) for envelope in self._storage.release())
        led = Led(self.hard.term, self.leader) if self.leader is not None else None
        if led != self._led:
            self._led = led
            self._outbox.append(led or Led(self.hard.term, None))
        if self.log.snapshot.index > self._applied:
            self._applied = self.log.snapshot.index
            self._outbox.append(Restore(self.log.snapshot))
        if self.log.commit > self._applied:
            first, self._applied = self._applied + 1, self.log.commit
            self._outbox.append(Committed(first, self.log.entries(first, self._applied)))
        actions, self._outbox = self._outbox, []
        return actions

    def _flush_leadership(self, leadership: Leadership, now: float) -> None:
        leadership.decide()
        if leadership.is_removed:
            self.resign(now)
            return
        leadership.mend(now)
        leadership.replicate(now)
        leadership.go_on_handing_over()
        self._send_for_leadership(leadership)
        self._set_deadline(now)

    def check(self) -> None:
        """Assert the invariants that hold between two events."""
        self.log.check()
        assert self.hard.begun or (self._election is None and self.leader is None), "an election before the set began"
        assert [self.leadership, self._election, self._leader].count(None) >= 2, "it leads, stands or follows at once"
        assert self.leadership is None or self._storage.hard.term == self.hard.term, (
            "it leads by a vote that is not on its disk"
        )
        assert self.leadership is None or self.leadership.has_majority, "it leads without a majority in contact"
        assert self._matched <= self.log.last and self._acknowledged <= self._matched
        assert self._staging is None or self._staging.snapshot.index > self.log.commit
        assert self.log.snapshot.index <= self._applied <= self.log.commit
        assert self.why_aside or self.leader is not None or self.deadline < math.inf, "no leader, and no timer"

    _HANDLERS: ClassVar[dict[type, Any]] = {
        say.PreVote: _take_pre_vote,
        say.PreVoted: _take_pre_voted,
        say.Vote: _take_vote,
        say.Voted: _take_voted,
        say.Outdated: _take_outdated,
        say.Lead: _take_lead,
        say.Append: _take_append,
        say.Piece: _take_piece,
        say.Digest: _take_digest,
        say.Resigned: _take_resigned,
        say.StandNow: _take_stand_now,
        say.Distrust: _take_distrust,
    }
