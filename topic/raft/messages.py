"""The messages between the replicas of a set, and the actions that a replica asks of its shell (protocol 13).

| message | sender | meaning | waits for the disk |
| --- | --- | --- | --- |
| `Greeting` | each, as a contact begins and as it changes | my store has accepted this life | yes |
| `Propose` | a router that begins a set | accept this life, with these stores as voters | no |
| `PreVote`, `PreVoted` | a voter without a leader | would I win an election? | no |
| `Vote`, `Voted` | a candidate | vote for me in this term | yes |
| `Lead` | a leader, as a contact begins | I lead; does your log have this entry? | no |
| `Append` | a leader | these entries follow that one; this is the commit index | no |
| `Stored` | a follower | my disk has all your entries up to this index | yes |
| `Lacking` | a follower | my log lacks that entry; try this one; this is what I have of a snapshot | no |
| `Piece` | a leader, to a log that ends before its own begins | this is a piece of the snapshot | no |
| `Staged` | a follower | my disk has that piece | yes |
| `Digest` | a follower, and a leader | my state at this index has this digest; a majority's has this digest | no |
| `Outdated` | each | there is a later term than yours, or a later life | no |
| `Resigned` | a leader that leads no more | look for another one | no |
| `StandNow` | a leader that hands over | begin an election without a pre-vote | no |
| `Distrust` | a leader | your disk has lost entries that it had acknowledged | no |

| action | when |
| --- | --- |
| `Persist` | the disk lacks something |
| `Send` | there is a message, and the disk has everything that it waits for |
| `Committed` | entries are decided |
| `Restore` | the pieces of a leader's snapshot replace the state |
| `Read` | a member is to be sent a piece of this replica's snapshot |
| `Agreed` | a majority has the same state as this replica, so the state may become the snapshot |
| `Led` | another member leads, or none |
| `Alarm` | an operator has to look |
| `SetAside` | the store is void, or not to be trusted |
"""

from typing import Final

import attrs

from topic.raft.configuration import Configuration, Replica
from topic.raft.life import NO_LIFE, SetLife
from topic.raft.log import NOTHING, Entry, Snapshot


@attrs.frozen(slots=True)
class Greeting:
    begun: bool
    """Whether the sender knows that all voters of its life have accepted the life."""
    ring: tuple[str, ...]
    """The routers that, by the sender's topology, are to be the voters."""
    mapping: bytes
    """The digest of the map from queue names to sets in the sender's topology."""
    leaves: bool = False
    """Whether the sender's router is about to stop. If so, it must not become the leader."""


@attrs.frozen(slots=True)
class Propose:
    configuration: Configuration
    anew: bool
    """Whether an operator has asked for this life. It then replaces a life that never came into effect."""


@attrs.frozen(slots=True)
class PreVote:
    term: int
    """The term in which the sender would stand for election."""
    last: int
    last_term: int


@attrs.frozen(slots=True)
class PreVoted:
    """The sender would grant the vote that a `PreVote` asks for. A replica that would refuse the vote sends no answer,
    or `Outdated`."""

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
    """The index of the entry before `entries`. The follower has this entry, as an earlier message on the channel has
    shown."""
    previous_term: int
    entries: tuple[Entry, ...]
    commit: int


@attrs.frozen(slots=True)
class Stored:
    term: int
    agreed: int
    """The last index up to which the follower knows that its log is equal to the leader's."""
    index: int
    """The last index, not above `agreed`, that the follower's disk has."""


@attrs.frozen(slots=True)
class Lacking:
    term: int
    index: int
    index_term: int
    own: int
    """The index of the snapshot that the follower itself has."""
    staged: int = 0
    """The index of the leader's snapshot whose pieces the follower stores until all have come; 0 if it has no piece of
    a snapshot."""
    pieces: int = 0
    """The number of pieces of the leader's snapshot that the follower has stored so far."""
    end: bytes = b""
    """`Piece.end` of the last of these pieces."""


@attrs.frozen(slots=True)
class Piece:
    term: int
    snapshot: Snapshot
    place: int
    """The number of the piece, from 0 on. If the leader replaces the snapshot that it is sending by a later one, the
    numbers go on, because the receiver keeps the pieces that it has stored."""
    data: bytes
    end: bytes
    """The place where the piece ends, in a form that only the shells understand; not empty."""
    is_last: bool


@attrs.frozen(slots=True)
class Staged:
    term: int
    index: int
    """The index of the snapshot to which the piece belongs."""
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
    """A message between replicas, with the life, the sender and the receiver. A replica of another life, or with
    another store, ignores it."""

    life: SetLife
    sender: Replica
    receiver: Replica
    body: Body


# The classes from here on are actions for the shell.


@attrs.frozen(slots=True)
class Hard:
    """The values that a store keeps in addition to its log."""

    life: SetLife = NO_LIFE
    """The life that the store has accepted; `NO_LIFE` if none."""
    mapping: bytes = b""
    """The digest of the map from queue names to sets with which the store has accepted the life."""
    begun: bool = False
    """Whether all voters have accepted the life. Then the life is in effect for ever."""
    term: int = 0
    vote: Replica | None = None
    """The candidate to which this replica has given its vote in the term; None if none."""


@attrs.frozen(slots=True)
class StoreContent:
    """The content of a replica's store at its start."""

    hard: Hard = Hard()
    snapshot: Snapshot = NOTHING
    entries: tuple[Entry, ...] = ()
    """The entries of the log after the snapshot."""


@attrs.frozen(slots=True)
class StagedPiece:
    """A piece of a leader's snapshot that a follower stores until all pieces have come. A piece with place 0 drops all
    pieces that were stored before. When the last piece has come, the shell makes the new state from its own snapshot
    and all pieces (`Persist.snapshot`). The pieces of the latest snapshot name the messages that the new state has. The
    shell drops all other messages of its own snapshot and of earlier pieces."""

    index: int
    place: int
    data: bytes


NO_PIECES: Final = StagedPiece(0, 0, b"")
"""Stands in place of a piece: the store drops all pieces of a leader's snapshot."""


@attrs.frozen(slots=True)
class Persist:
    """Write all of this to the disk in one transaction, after all earlier writes. Then call
    `Raft.persisted(number)`."""

    number: int
    hard: Hard
    pieces: tuple[StagedPiece, ...]
    snapshot: Snapshot | None
    """The new snapshot; None if the write has none. The state at its index becomes the snapshot: the shell has kept
    this state, or has made it from a leader's pieces. The new snapshot replaces the former one and the entries up to
    the index. If the state was made from pieces, the store may drop the pieces."""
    first: int
    """The index of the first entry in this write. The write replaces all entries from this index on."""
    entries: tuple[Entry, ...]


@attrs.frozen(slots=True)
class Send:
    """Send the message on the channel to the receiver's router. If the contact ends, the message is lost."""

    envelope: Envelope


@attrs.frozen(slots=True)
class Committed:
    """Apply these entries in order. They are decided; the first one has index `first`."""

    first: int
    entries: tuple[Entry, ...]


@attrs.frozen(slots=True)
class Restore:
    """Replace the state by the one of this snapshot, which the shell has made of a leader's pieces. The disk has it
    once the last `Persist` is written."""

    snapshot: Snapshot


PIECE: Final = 256 * 1024
"""The approximate number of bytes of a piece of a snapshot, while the log grows slowly. If the log grows fast, the
pieces are larger (`topic.raft.progress`)."""


@attrs.frozen(slots=True)
class Read:
    """Read a piece of the snapshot at this index, after all writes so far. Then call `Raft.read`."""

    to: Replica
    index: int
    place: int
    has: int
    """The index of the snapshot of which the member has a part; 0 if it has no part of any snapshot."""
    after: bytes
    """`Piece.end` of this part: the next piece begins there. Empty if the member has all of that snapshot, or no part
    of any snapshot."""
    size: int = PIECE
    """The number of bytes, about, that the piece is to have."""


@attrs.frozen(slots=True)
class Agreed:
    """At this index, a majority of the voters has the same state as this replica, so the state may become the snapshot.
    To make it the snapshot, the shell calls `Raft.compact`."""

    index: int


@attrs.frozen(slots=True)
class Led:
    """The member that leads in this term; None if this replica knows none."""

    term: int
    leader: Replica | None


@attrs.frozen(slots=True)
class Alarm:
    """Report a problem to the operator. The replica itself goes on."""

    why: str


@attrs.frozen(slots=True)
class SetAside:
    """This store no longer takes part. Keep its file under another name, and begin with an empty store."""

    why: str


Action = Persist | Send | Committed | Restore | Read | Agreed | Led | Alarm | SetAside
