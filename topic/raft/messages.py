"""What the replicas of a set say to each other, and what a replica asks of its shell (protocol 13).

| message | who says it | what it says | waits for the disk |
| --- | --- | --- | --- |
| `Greeting` | each, as a contact begins and as it changes | my store has accepted this life | yes |
| `Propose` | a router that begins a set | accept this life, with these stores as voters | no |
| `PreVote`, `PreVoted` | a voter without a leader | would I win an election? | no |
| `Vote`, `Voted` | a candidate | vote for me in this term | yes |
| `Lead` | a leader, as a contact begins | I lead; does your log have this entry? | no |
| `Append` | a leader | these entries follow that one; so much is committed | no |
| `Stored` | a follower | my disk has all that you have, up to this index | yes |
| `Lacking` | a follower | my log lacks that entry; try this one | no |
| `Piece` | a leader, to a log that ends before its own begins | this is a piece of the snapshot | no |
| `Staged` | a follower | my disk has that piece | yes |
| `Digest` | a follower, and a leader | my state at this index has this digest; a majority's has this digest | no |
| `Outdated` | each | there is a later term than yours, or a later life | no |
| `Resigned` | a leader that leads no more | look for another one | no |
| `StandNow` | a leader that hands over | begin an election without a pre-vote | no |
| `Distrust` | a leader | your disk has lost what it had acknowledged | no |

| what a replica asks of its shell | when |
| --- | --- |
| `Persist` | there is something that the disk does not have |
| `Send` | there is a message, and the disk has what it waits for |
| `Committed` | entries are decided |
| `Restore` | the pieces of a leader's snapshot take the place of the state |
| `Read` | a member is to be sent a piece of this replica's snapshot |
| `Agreed` | a majority has the state that this replica has: it may become the snapshot |
| `Led` | another member leads, or none |
| `Alarm` | an operator has to look |
| `SetAside` | the store is void, or not to be trusted |
"""

import attrs

from topic.raft.configuration import Configuration, Replica
from topic.raft.log import NOTHING, Entry, Snapshot


@attrs.frozen(slots=True)
class Greeting:
    begun: bool
    """The sender knows that all voters of its life have accepted it."""
    ring: tuple[str, ...]
    """The routers that are to be voters, by the sender's topology."""
    mapping: bytes
    """Digest of the map from queue names to sets, by the sender's topology."""


@attrs.frozen(slots=True)
class Propose:
    configuration: Configuration
    anew: bool
    """An operator's word: it takes the place of a life that never came into effect."""


@attrs.frozen(slots=True)
class PreVote:
    term: int
    """The term that the sender would stand in."""
    last: int
    last_term: int


@attrs.frozen(slots=True)
class PreVoted:
    """The sender would vote so. A replica that would not says nothing, or `Outdated`."""

    term: int


@attrs.frozen(slots=True)
class Vote:
    term: int
    last: int
    last_term: int


@attrs.frozen(slots=True)
class Voted:
    term: int


@attrs.frozen(slots=True)
class Lead:
    term: int
    index: int
    index_term: int
    commit: int


@attrs.frozen(slots=True)
class Append:
    term: int
    previous: int
    """Index of the entry before `entries`. The follower has it, as an earlier message on this channel says."""
    previous_term: int
    entries: tuple[Entry, ...]
    commit: int


@attrs.frozen(slots=True)
class Stored:
    term: int
    agreed: int
    """The last index up to which the follower's log is known to be equal to the leader's."""
    index: int
    """The last index of these that its disk has."""


@attrs.frozen(slots=True)
class Lacking:
    term: int
    index: int
    index_term: int


@attrs.frozen(slots=True)
class Piece:
    term: int
    snapshot: Snapshot
    place: int
    """0: the first piece."""
    data: bytes
    is_last: bool


@attrs.frozen(slots=True)
class Staged:
    term: int
    index: int
    """Index of the snapshot."""
    place: int


@attrs.frozen(slots=True)
class Digest:
    term: int
    index: int
    digest: bytes


@attrs.frozen(slots=True)
class Outdated:
    term: int


@attrs.frozen(slots=True)
class Resigned:
    term: int


@attrs.frozen(slots=True)
class StandNow:
    term: int


@attrs.frozen(slots=True)
class Distrust:
    term: int


Body = (
    Greeting | Propose | PreVote | PreVoted | Vote | Voted | Lead | Append | Stored | Lacking | Piece | Staged | Digest
    | Outdated | Resigned | StandNow | Distrust
)  # fmt: skip


@attrs.frozen(slots=True)
class Envelope:
    """A message with the names that it counts for. Another life, or another store, makes it void."""

    life: int
    sender: Replica
    receiver: Replica
    body: Body


# what a replica asks of its shell


@attrs.frozen(slots=True)
class Hard:
    """What a store must not forget, beside its log."""

    life: int = 0
    """Hybrid clock at the beginning of the set, or at its latest recovery; 0: the store has accepted none."""
    mapping: bytes = b""
    """Digest of the map from queue names to sets under which the store has accepted that."""
    begun: bool = False
    """All voters have accepted that life: it is in effect for ever."""
    term: int = 0
    vote: Replica | None = None
    """The candidate that has this replica's vote in this term."""


@attrs.frozen(slots=True)
class StoreContent:
    """What a store has when a replica starts."""

    hard: Hard = Hard()
    snapshot: Snapshot = NOTHING
    entries: tuple[Entry, ...] = ()
    """They follow the snapshot."""


@attrs.frozen(slots=True)
class StagedPiece:
    """A piece of a leader's snapshot, as a follower puts it aside. The first piece ends the leader's earlier snapshot,
    or an earlier leader's, if it was not whole yet; and a state that was put aside for the same index."""

    index: int
    place: int
    data: bytes


@attrs.frozen(slots=True)
class Persist:
    """Put this on the disk in one transaction, behind all earlier writes; then call `Raft.persisted(number)`."""

    number: int
    hard: Hard
    pieces: tuple[StagedPiece, ...]
    snapshot: Snapshot | None
    """The state that was put aside for this index is the snapshot. Entries up to the index go, with the former one."""
    first: int
    """The entries take the place of all from this index on."""
    entries: tuple[Entry, ...]


@attrs.frozen(slots=True)
class Send:
    """Send this on the channel to the receiver's router. What cannot be sent is lost with the contact."""

    envelope: Envelope


@attrs.frozen(slots=True)
class Committed:
    """These entries are decided, from this index on: apply them in order."""

    first: int
    entries: tuple[Entry, ...]


@attrs.frozen(slots=True)
class Restore:
    """The state is the one that was put aside for this snapshot, which the disk has after the last `Persist`."""

    snapshot: Snapshot


@attrs.frozen(slots=True)
class Read:
    """Read a piece of the snapshot at this index, behind all writes so far; then call `Raft.read`."""

    to: Replica
    index: int
    place: int


@attrs.frozen(slots=True)
class Agreed:
    """A majority of the voters has the state that this replica has at the index. So it may become the snapshot: put it
    aside, then call `Raft.compact`."""

    index: int


@attrs.frozen(slots=True)
class Led:
    """This member leads in this term; None: nobody does, as far as this replica knows."""

    term: int
    leader: Replica | None


@attrs.frozen(slots=True)
class Alarm:
    """Tell the operator. The replica goes on."""

    why: str


@attrs.frozen(slots=True)
class SetAside:
    """This store is to take part no more: keep the file under another name, and begin with an empty one."""

    why: str


Action = Persist | Send | Committed | Restore | Read | Agreed | Led | Alarm | SetAside
