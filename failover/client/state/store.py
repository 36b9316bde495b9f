"""Stores what a client needs to resume its link: unsettled deliveries, generation and epoch.

A `Store` takes changes in batches, and stores each batch as a whole or not at all. The client stays exactly-once across
its own crash because of the order in which it makes changes durable:

- publisher: message and tag before the transfer, the outcome before the settlement;
- subscriber: key and outcome before the disposition.

The client may store a settlement at any later time. If it resumes a delivery that the mesh has settled, this does no
harm: the router leaves the delivery out of its map.

`router.disk.commits` decides when to write.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import Final, Literal, NamedTuple, Protocol, Self, TypeAlias

from attrs import define, field

from failover.client.errors import StateError
from failover.client.state.comparison import TERMINAL
from router.amqp.format.values import NO_STATE
from router.disk.sqlite import EMPTY, FileForm, SqliteFile, UnusableError
from topic.identity import EPOCH_TEXT, GENERATION_LENGTH, LinkIdentity

Role: TypeAlias = Literal["publisher", "subscriber"]

TAG_LENGTH: Final = 8
LARGEST_NUMBER: Final = 2**62
"""The largest number of a delivery. No client ever sends this many messages, and SQLite could store numbers up to twice
as large."""
LONGEST_TAG: Final = 32  # AMQP 1.0 2.8.7
UNUSABLE: Final = "cannot be used as a state file"
UNKEPT: Final = "the state cannot be stored"


def tag_of(number: int) -> bytes:
    """The delivery-tag of the publisher's delivery with this number. Tags sort in the order of their numbers."""
    return number.to_bytes(TAG_LENGTH, "big")


class Attached(NamedTuple):
    """A router has answered the attach, so the client resumes the link from now on."""

    generation: bytes | None
    epoch: str | None


class Added(NamedTuple):
    """A publisher has a new delivery. No number is used twice."""

    number: int
    message: bytes


class Decided(NamedTuple):
    """A delivery has got its outcome. A subscriber's store first learns of a delivery by this change."""

    tag: bytes
    state: int


class Removed(NamedTuple):
    """The delivery is settled, so the store removes it."""

    tag: bytes


class Ended(NamedTuple):
    """The link is detached for good. The next link of the same identity begins afresh, but its first delivery gets the
    number after the last one of this link."""


Change: TypeAlias = Attached | Added | Decided | Removed | Ended


class Unsettled(NamedTuple):
    """An unsettled delivery, as the store has it. A subscriber does not store the message, so `message` is None."""

    state: int
    message: bytes | None


@define
class Saved:
    """The state of one link, as a store keeps it."""

    attached: bool = False
    generation: bytes | None = None
    epoch: str | None = None
    next_number: int = 0
    unsettled: dict[bytes, Unsettled] = field(factory=dict)  # a publisher's deliveries are in their order


class Store(Protocol):
    """Stores the state of links. `durable`: the durability that a link's terminus can promise with this store (AMQP 1.0
    3.5.3). `threaded`: `write` blocks, so it has to run in a worker thread. `load` and `write` raise StateError if they
    fail."""

    durable: int
    threaded: bool

    def load(self, role: Role, identity: LinkIdentity) -> Saved:
        """Return the state of the link that the store keeps."""

    def write(self, role: Role, identity: LinkIdentity, changes: Sequence[Change]) -> None:
        """Store all of these changes, or none of them."""


class MemoryStore:
    """A store in memory. It outlives routers and connections, but not the process."""

    durable = 1
    threaded = False

    def __init__(self) -> None:
        self._links: dict[tuple[Role, LinkIdentity], Saved] = {}

    def load(self, role: Role, identity: LinkIdentity) -> Saved:
        return self._links.setdefault((role, identity), Saved())

    def write(self, role: Role, identity: LinkIdentity, changes: Sequence[Change]) -> None:
        saved = self.load(role, identity)
        unsettled = saved.unsettled
        for change in changes:
            match change:
                case Added(number, message):
                    unsettled[tag_of(number)] = Unsettled(NO_STATE, message)
                    saved.next_number = number + 1
                case Decided(tag, state):
                    unsettled[tag] = Unsettled(state, unsettled[tag].message if tag in unsettled else None)
                case Removed(tag):
                    unsettled.pop(tag, None)
                case Attached(generation, epoch):
                    saved.attached, saved.generation, saved.epoch = True, generation, epoch
                case Ended():
                    self._links[role, identity] = Saved(next_number=saved.next_number)


_ADDED: Final = "INSERT INTO oncemesh_unsettled (link, tag, state, message) VALUES (?, ?, 0, ?)"
_COUNTED: Final = "UPDATE oncemesh_link SET next_number = ? WHERE id = ?"
_DECIDED: Final = """INSERT INTO oncemesh_unsettled (link, tag, state) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET state = excluded.state"""
_REMOVED: Final = "DELETE FROM oncemesh_unsettled WHERE link = ? AND tag = ?"
_ATTACHED: Final = "UPDATE oncemesh_link SET attached = 1, generation = ?, epoch = ? WHERE id = ?"
_ENDED: Final = "UPDATE oncemesh_link SET attached = 0, generation = NULL, epoch = NULL WHERE id = ?"
_CLEARED: Final = "DELETE FROM oncemesh_unsettled WHERE link = ?"

_OF_LINK: Final = "FROM oncemesh_link WHERE (role, container, name, address, user) = (?, ?, ?, ?, ?)"
_OTHERS: Final = """SELECT role, container, name, address, user,
    (SELECT count(*) FROM oncemesh_unsettled WHERE link = oncemesh_link.id) FROM oncemesh_link
    WHERE attached = 1 AND (role, container, name, address, user) != (?, ?, ?, ?, ?) ORDER BY id"""
_MADE: Final = "INSERT INTO oncemesh_link (role, container, name, address, user) VALUES (?, ?, ?, ?, ?)"

FORM: Final = FileForm(
    name="a client's state",
    application=0x6F6E636C,  # the ASCII text "oncl"
    version=2,
    tables=(
        """CREATE TABLE IF NOT EXISTS oncemesh_link (
            id INTEGER PRIMARY KEY, role TEXT NOT NULL,
            container TEXT NOT NULL, name TEXT NOT NULL, address TEXT NOT NULL, user TEXT NOT NULL,
            attached INTEGER NOT NULL DEFAULT 0, generation BLOB, epoch TEXT, next_number INTEGER NOT NULL DEFAULT 0,
            UNIQUE (role, container, name, address, user))""",
        """CREATE TABLE IF NOT EXISTS oncemesh_unsettled (
            link INTEGER NOT NULL REFERENCES oncemesh_link (id), tag BLOB NOT NULL,
            state INTEGER NOT NULL, message BLOB,
            PRIMARY KEY (link, tag))""",
    ),
    settings=("journal_mode = WAL", "synchronous = FULL"),
    held="another running client uses it",
    is_shared=False,
)


def _key(role: Role, identity: LinkIdentity) -> tuple[str, ...]:
    return role, identity.container, identity.link, identity.address, identity.user


def _is_sound(role: Role, saved: Saved) -> bool:
    """Whether a client can have written this state. SQLite would not notice a wrong value, because any column takes a
    value of any type."""
    generation, epoch = saved.generation, saved.epoch
    return (
        (generation is None or (isinstance(generation, bytes) and len(generation) == GENERATION_LENGTH))
        and (epoch is None or (isinstance(epoch, str) and EPOCH_TEXT.fullmatch(epoch) is not None))
        and isinstance(saved.next_number, int)
        and 0 <= saved.next_number <= LARGEST_NUMBER
        and all(isinstance(tag, bytes) and _fits(role, tag, entry) for tag, entry in saved.unsettled.items())
        and (role == "subscriber" or max(saved.unsettled, default=b"") < tag_of(saved.next_number))
    )


def _fits(role: Role, tag: bytes, entry: Unsettled) -> bool:
    if role == "publisher":
        written = len(tag) == TAG_LENGTH and isinstance(entry.message, bytes)
        return written and entry.state in (NO_STATE, *TERMINAL)
    return 0 < len(tag) <= LONGEST_TAG and entry.state in TERMINAL


class SqliteStore:
    """A store in an SQLite file of its own, or in tables of an open connection. It outlives its process.

    A file serves one process at a time. If the user gives a connection, every write of the store also commits the
    changes that the user has made on it since the last commit. So `await delivery.accept()` puts the user's own changes
    and the acceptance into one transaction. For a subscriber, only acceptances and rejections commit. The connection
    has to open transactions by itself, which is Python's default. With `isolation_level=None`, the user has to open
    them.
    """

    durable = 2

    def __init__(self, where: str | PathLike[str] | sqlite3.Connection) -> None:
        """Raises StateError in these cases: the file belongs to another program, cannot be used, or is held by another
        process; or the given connection does not open transactions."""
        self.threaded = not isinstance(where, sqlite3.Connection)
        # A publisher and a subscriber may share this store.
        self._lock = threading.Lock()
        self._ids: dict[tuple[Role, LinkIdentity], int] = {}
        self._where = "the connection" if isinstance(where, sqlite3.Connection) else os.fsdecode(where)
        self._file: SqliteFile | None = None
        with self._explained(UNUSABLE):
            if isinstance(where, sqlite3.Connection):
                self._connection = where
                self._join()
            else:
                self._file = SqliteFile(self._where, FORM)
                self._connection = self._file.connection

    def _join(self) -> None:
        """Create the tables of the store in the database of the connection's user."""
        if getattr(self._connection, "autocommit", None) is True:  # connections have `autocommit` since Python 3.12
            raise UnusableError(
                "it commits each statement at once (autocommit), expected a connection with transactions"
            )
        for table in FORM.tables:
            self._connection.execute(table)

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            with self._file.explained() if self._file is not None else contextlib.nullcontext():
                yield
        except UnusableError as error:
            forget = "; remove the file only if the client may forget everything" if error.reason == EMPTY else ""
            raise StateError(self._where, f"{what}: {error.reason}{forget}") from error
        except sqlite3.Error as error:
            raise StateError(self._where, f"{what}: {error}") from error

    def close(self) -> None:
        """Close the store's own file. A connection that the user gave stays open."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def load(self, role: Role, identity: LinkIdentity) -> Saved:
        with self._lock, self._explained(UNUSABLE):
            key = _key(role, identity)
            row = self._ask(f"SELECT id, attached, generation, epoch, next_number {_OF_LINK}", key).fetchone()
            if row is None:
                return Saved()
            self._ids[role, identity] = row[0]
            unsettled_of = "SELECT tag, state, message FROM oncemesh_unsettled WHERE link = ? ORDER BY tag"
            entries = self._ask(unsettled_of, row[:1])
            unsettled = {tag: Unsettled(state, message) for tag, state, message in entries}
            saved = Saved(bool(row[1]), row[2], row[3], row[4], unsettled)
            if not _is_sound(role, saved):
                raise StateError(self._where, f"{UNUSABLE}: damaged: the data of {identity} in it are inconsistent")
            return saved

    def others(self, role: Role, identity: LinkIdentity) -> list[tuple[str, LinkIdentity, int]]:
        """The other links in this store that have not ended. Each has its role, its identity, and the number of its
        unsettled deliveries."""
        with self._lock, self._explained(UNUSABLE):
            rows = self._ask(_OTHERS, _key(role, identity)).fetchall()
        return [(other, LinkIdentity(*names), unsettled) for other, *names, unsettled in rows]

    def write(self, role: Role, identity: LinkIdentity, changes: Sequence[Change]) -> None:
        with self._lock, self._explained(UNKEPT):
            try:
                with self._file.transaction() if self._file is not None else self._their_transaction():
                    self._apply(self._id(role, identity), changes)
            except BaseException:
                self._ids.clear()
                raise

    @contextlib.contextmanager
    def _their_transaction(self) -> Iterator[None]:
        """Write in one transaction with everything that the connection's user has done before. If the write fails, the
        user has to roll back."""
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")
        yield
        self._connection.commit()

    def _id(self, role: Role, identity: LinkIdentity) -> int:
        """The id of the row that the link has in the table. The first change of the link makes the row."""
        if (role, identity) not in self._ids:
            key, found = _key(role, identity), f"SELECT id {_OF_LINK}"
            if not self._ask(found, key).fetchone():
                self._connection.execute(_MADE, key)
            self._ids[role, identity] = self._ask(found, key).fetchone()[0]
        return self._ids[role, identity]

    def _ask(self, query: str, parameters: tuple[str | int, ...]) -> sqlite3.Cursor:
        """Run a query. The rows are tuples, even if the connection's user has set a row factory."""
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor.execute(query, parameters)

    def _apply(self, link: int, changes: Iterable[Change]) -> None:
        execute = self._connection.execute
        for change in changes:
            match change:
                case Added(number, message):
                    execute(_ADDED, (link, tag_of(number), message))
                    execute(_COUNTED, (number + 1, link))
                case Decided(tag, state):
                    execute(_DECIDED, (link, tag, state))
                case Removed(tag):
                    execute(_REMOVED, (link, tag))
                case Attached(generation, epoch):
                    execute(_ATTACHED, (generation, epoch, link))
                case Ended():
                    execute(_ENDED, (link,))
                    execute(_CLEARED, (link,))


class LinkStore:
    """The part of a store that has the state of one link."""

    def __init__(self, store: Store, role: Role, identity: LinkIdentity) -> None:
        self.threaded = store.threaded
        self._store = store
        self._role: Role = role
        self._identity = identity

    def load(self) -> Saved:
        return self._store.load(self._role, self._identity)

    def write(self, changes: Sequence[Change]) -> None:
        self._store.write(self._role, self._identity, changes)
