"""The leader of a set. It takes entries, sends them to the members, decides them, and changes the members (protocol
13.4).

A leadership lasts for one term. At its end `resign` tells the members, because their contact with this router may go
on, so that they would not notice the end.
"""

import math

import attrs

from topic.errors import BreachError
from topic.raft import messages as say
from topic.raft.configuration import Configuration, Replica
from topic.raft.errors import BusyError
from topic.raft.life import NO_LIFE, SetLife
from topic.raft.limits import RaftLimits
from topic.raft.log import Entry, RaftLog
from topic.raft.messages import Body, Read
from topic.raft.progress import FollowerProgress, SnapshotPart
from topic.raft.stores import KnownStores


@attrs.frozen(slots=True)
class _HandOver:
    """A change of leadership to another member that is under way. Meanwhile the leader proposes nothing."""

    to: Replica
    until: float
    """When this leader gives the change up and goes on leading."""
    is_told: bool = False
    """Whether this leader has told the member to stand for election. It does so when all entries are decided and on the
    member's disk."""


class Leadership:
    """The leadership of one replica, in one term."""

    def __init__(
        self, me: Replica, life: SetLife, term: int, log: RaftLog, stores: KnownStores, limits: RaftLimits, now: float
    ) -> None:
        self.term = term
        self.messages: list[tuple[Replica, Body]] = []
        """The messages that the leader has yet to send, in order."""
        self.reads: list[Read] = []
        """The pieces of the snapshot that the shell has to read."""
        self.progress: dict[Replica, FollowerProgress] = {}
        self._me = me
        self._life = life
        self._log = log
        self._stores = stores
        self._limits = limits
        self._handing_over: _HandOver | None = None
        self._tell_by = math.inf
        """When this leader sends the commit index to members even without entries; infinite if all members know it."""
        for member in log.configuration.members:
            self._take_in(member, now)
        log.append([Entry(term)])  # the decision of this entry also decides entries of earlier terms (Raft, 3.6.2)

    def _take_in(self, member: Replica, now: float) -> None:
        """Begin to keep the progress of a member. If the member is in contact, send it `Lead`."""
        if member not in self.progress and member != self._me:
            self.progress[member] = FollowerProgress(self._log.last, now)
            self.connect(member)

    def connect(self, member: Replica) -> None:
        """Handle a new contact with a router. If the router is a member with this store, send it `Lead`."""
        if member in self.progress and self._stores.has(member):
            self._send(member, self.progress[member].ask(self._log, self._log.last, self.term))

    def disconnect(self, member: Replica) -> None:
        if member in self.progress:
            self.progress[member].disconnected()
        if self._handing_over is not None and self._handing_over.to == member:
            self._handing_over = None

    @property
    def has_majority(self) -> bool:
        """Whether a majority of the voters, counting this leader, is in contact."""
        return self._is_in_contact(self._log.configuration)

    def _is_in_contact(self, configuration: Configuration) -> bool:
        return configuration.is_majority(self._reached(configuration))

    def _reached(self, configuration: Configuration) -> list[Replica]:
        return [voter for voter in configuration.voters if self._stores.has(voter)]

    @property
    def is_removed(self) -> bool:
        """Whether a decided configuration no longer has this replica as a voter (Raft, 4.2.2)."""
        return self._me not in self._log.configuration.voters and self.may_configure

    def resign(self) -> None:
        """Send `Resigned` to all routers in contact, not only to members. A router that this leader has just removed
        may become a member again if its removal is never decided."""
        for known in self._stores.all():
            self._send(known.member, say.Resigned(self.term))

    # The methods from here on are about entries.

    def propose(self, data: list[bytes]) -> int:
        """Append entries to the log. Returns the index of the first one. Raises BusyError while this leader hands over,
        or if too many bytes wait."""
        if self._handing_over is not None:
            raise BusyError(f"this router hands the lead over to router {self._handing_over.to.router}")
        last = self._log.last
        waiting = self._log.size(min(self._log.commit, self._log.stable), last)
        if waiting >= self._limits.unstored:
            what = f"{waiting} bytes wait to be written to disk or copied to a majority"
            raise BusyError(f"{what}, expected less than {self._limits.unstored}: try again later")
        self._log.append([Entry(self.term, one) for one in data])
        return last + 1

    def receive(self, member: Replica, body: say.Stored | say.Lacking | say.Staged) -> None:
        """Take the answer of a member. An answer to a leader of another term is ignored. Raises BreachError if the
        answer is impossible."""
        progress = self.progress.get(member)
        if progress is None or body.term != self.term:
            return
        if isinstance(body, say.Stored):
            self._take_stored(member, progress, body)
        elif isinstance(body, say.Lacking):
            self._take_lacking(member, progress, body)
        else:
            progress.staged(body.place)

    def _take_stored(self, member: Replica, progress: FollowerProgress, body: say.Stored) -> None:
        """Take the member's report about the entries that its disk has."""
        if not progress.stored <= body.index <= body.agreed <= self._log.last:
            told = f"agrees with this one up to entry {body.agreed} and is stored up to entry {body.index}"
            expected = f"{progress.stored} <= stored <= agreed <= {self._log.last}"
            raise BreachError(f"router {member.router} says that its log {told}, expected {expected}")
        progress.learn(body.agreed, body.index)

    def _take_lacking(self, member: Replica, progress: FollowerProgress, body: say.Lacking) -> None:
        """Handle a `Lacking`: the member's log lacks the entry about which this leader has asked (`progress.probe`).

        If the member's disk lacks entries that the member had acknowledged, tell the member to set its store aside.
        Otherwise ask the member about an earlier entry. If this leader's log has no such entry any more, begin to send
        the snapshot.
        """
        if progress.probe is None:
            return
        if body.index < progress.stored:
            self._send(member, say.Distrust(self.term))
        elif (index := self._log.latest_up_to(min(body.index, progress.probe), body.index_term)) is not None:
            self._send(member, progress.ask(self._log, index, self.term))
        elif 0 < body.staged <= self._log.snapshot.index:
            progress.send_snapshot(SnapshotPart(body.staged, body.pieces, body.end))
        else:  # if the pieces are of a later snapshot, they may lack rows of this leader's snapshot
            progress.send_snapshot(SnapshotPart(body.own, 0, b""))

    def decide(self) -> None:
        """Decide the entries that a majority of disks has, if the last of them is of this leader's term (Raft,
        3.6.2)."""
        stored = {member: progress.stored for member, progress in self.progress.items()}
        index = self._log.configuration.agreed({**stored, self._me: self._log.stable})
        if index > self._log.commit and self._log.term(index) == self.term:
            self._log.commit = index

    def replicate(self, now: float) -> None:
        """Send each member the entries that it lacks, as far as its window allows. The messages also tell it the commit
        index."""
        if self._owes_commit():
            self._tell_by = min(self._tell_by, now + self._limits.told)
        is_due = now >= self._tell_by
        for member, progress in self.progress.items():
            self._replicate_to(member, progress, now, is_due=is_due)
        if not self._owes_commit():
            self._tell_by = math.inf

    def _owes_commit(self) -> bool:
        return any(progress.lacks_commit(self._log) for progress in self.progress.values())

    def _replicate_to(self, member: Replica, progress: FollowerProgress, now: float, *, is_due: bool) -> None:
        log, window = self._log, self._limits.window
        if progress.lacks_entries(log):
            self._send(member, progress.ask_again(log, self.term))
        while (append := progress.next_append(log, self.term, window, is_due=is_due)) is not None:
            self._send(member, append)
        if (piece := progress.next_piece(log, now)) is not None:
            has, size = piece
            self.reads.append(Read(member, log.snapshot.index, has.pieces, has.index, has.end, size))

    # The methods from here on are about snapshots.

    def compacted(self) -> None:
        """This leader has made a later snapshot. A member that is being sent the former snapshot gets pieces of the
        later one from now on."""
        for progress in self.progress.values():
            progress.read_anew()

    def read(self, read: Read, data: bytes, end: bytes, is_last: bool) -> None:
        """Take a piece of a snapshot that the shell has read. Send it if the member still needs it."""
        piece = say.Piece(self.term, self._log.snapshot, read.place, data, end, is_last)
        progress = self.progress.get(read.to)
        if progress is None or read.index != piece.snapshot.index:
            return
        if progress.take_piece(SnapshotPart(read.has, read.place, read.after), piece):
            self._send(read.to, piece)

    # The methods from here on are about members.

    @property
    def may_configure(self) -> bool:
        """Whether the members may be changed now. They may if no earlier change is under way, and this leader has
        decided an entry of its own term (Ongaro, 2015)."""
        commit = self._log.commit
        return self._log.term(commit) == self.term and self._log.configured_at <= commit

    def configure(self, configuration: Configuration, now: float) -> int:
        """Change the members. Returns the log index of the change. Raises BusyError if it is not possible now, and
        ValueError if more than one voter would change."""
        if not self.may_configure or self._handing_over is not None:
            raise BusyError("an earlier change of the members is under way")
        if not self._is_in_contact(configuration):
            count = f"{len(self._reached(configuration))} of the {len(configuration.voters)} new voters"
            raise BusyError(f"this router reaches only {count}, expected a majority")
        if not configuration.differs_by_one(self._log.configuration):
            raise ValueError("more than one voter would change, expected one at most")
        self._log.append([Entry(self.term, configuration=configuration)])
        for member in configuration.members:
            self._take_in(member, now)
        for member in [member for member in self.progress if member not in configuration.members]:
            # The leader still sends to the removed member, so that it may learn of its removal.
            self._replicate_to(member, self.progress.pop(member), now, is_due=True)
        return self._log.last

    def mend(self, now: float) -> None:
        """Take the next step of a change of members, until the voters are the routers of the ring."""
        if self.may_configure and self._handing_over is None:
            wanted = self._next_configuration(now)
            if wanted is not None and self._is_in_contact(wanted):
                self.configure(wanted, now)

    def _next_configuration(self, now: float) -> Configuration | None:
        """The configuration after the next step towards the ring; None if the ring is reached. The first possible step
        of this list is taken:

        1. Remove a store that was replaced.
        2. If a router that is to have a replica is no member, add it as a learner.
        3. If a learner of the ring has caught up, make it a voter.
        4. If all routers of the ring are voters, take a member that is not in the ring out of the voters, this leader
           last. If its router is to keep an asynchronous copy, the member stays as a learner; otherwise it leaves.
        """
        present = self._log.configuration
        for member in present.members:
            known = self._stores.get(member.router)
            if known is not None and known.member != member:
                return present.without(member)
        ring, routers = present.ring, {member.router for member in present.members}
        for router in (*ring, *present.copies):
            known = self._stores.get(router)
            if router not in routers and known is not None and known.life in (NO_LIFE, self._life):
                return present.with_learner(known.member)
        for learner in present.learners:
            progress = self.progress[learner]
            if learner.router in ring and progress.is_caught_up(self._log.last, now, self._limits.election):
                return present.promoting(learner)
        if {voter.router for voter in present.voters}.issuperset(ring):
            others = [voter for voter in present.voters if voter.router not in ring]
            others += [learner for learner in present.learners if learner.router not in (*ring, *present.copies)]
            for member in sorted(others, key=lambda member: member == self._me)[:1]:
                return present.demoting(member) if member.router in present.copies else present.without(member)
        return None

    # The methods from here on hand the leadership over.

    def hand_over(self, member: Replica, now: float) -> None:
        """Hand the leadership over to this voter. Until the voter has all entries and has won an election, this leader
        proposes nothing. Raises ValueError unless the member is another voter in contact."""
        if member not in self.progress or member not in self._log.configuration.voters or not self._stores.has(member):
            why = "expected another voter that this router can reach"
            raise ValueError(f"router {member.router} cannot become leader: {why}")
        self._handing_over = _HandOver(member, now + self._limits.dead)

    @property
    def is_handing_over(self) -> bool:
        return self._handing_over is not None

    @property
    def ring(self) -> tuple[str, ...]:
        """The routers that are to be the voters, the preferred one first."""
        return self._log.configuration.ring

    @property
    def successors(self) -> list[Replica]:
        """The other voters in contact whose routers are not about to stop."""
        known = ((voter, self._stores.get(voter.router)) for voter in self._log.configuration.voters)
        return [voter for voter, told in known if told is not None and told.member == voter and not told.leaves]

    def successor_at(self, router: str) -> Replica | None:
        """The possible successor at this router, if its disk lacks so few entries that it can lead soon; otherwise
        None."""
        log = self._log
        for voter in self.successors:
            if voter.router == router:
                stored = self.progress[voter].stored
                is_near = stored >= log.snapshot.index and log.size(stored, log.last) < self._limits.window
                return voter if is_near else None
        return None

    def hand_over_to_best(self, now: float) -> None:
        """Hand over to the voter whose disk has most entries, because the disk of this leader hangs. If that voter's
        disk does not have more than this one, do nothing."""
        best = self.best
        if best is not None and self.progress[best].stored > self._log.stable and self._handing_over is None:
            self.hand_over(best, now)

    @property
    def best(self) -> Replica | None:
        """The possible successor whose disk has the most entries; None if there is none."""
        return max(self.successors, key=lambda voter: self.progress[voter].stored, default=None)

    def go_on_handing_over(self) -> None:
        """Tell the next leader to stand for election as soon as all entries are decided and on the next leader's
        disk. Give up if the router of the next leader is about to stop, too."""
        change = self._handing_over
        if change is None or change.is_told:
            return
        if change.to not in self.successors:
            self._handing_over = None
        elif self._log.commit == self._log.last == self.progress[change.to].stored:
            self._send(change.to, say.StandNow(self.term))
            self._handing_over = attrs.evolve(change, is_told=True)

    def give_up_handing_over(self, now: float) -> None:
        if self._handing_over is not None and now >= self._handing_over.until:
            self._handing_over = None

    @property
    def deadline(self) -> float:
        """The earliest of three times: when the present change of leadership has failed, when this leader sends members
        the commit index, and when the shell has to read a piece of a snapshot. Infinite if none of these applies."""
        pieces = min((progress.reads_at for progress in self.progress.values()), default=math.inf)
        return min(self._tell_by, pieces, self._handing_over.until if self._handing_over is not None else math.inf)

    def _send(self, member: Replica, body: Body) -> None:
        self.messages.append((member, body))
