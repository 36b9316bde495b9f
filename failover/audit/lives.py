"""Deliveries that share a key, told apart: a publisher may use a tag again once the delivery before is settled.

Routers withhold a key until the old delivery is forgotten (protocol section 1), so the lives of one key follow each
other in the mesh. From here on each has a name of its own: the key, `#` and its number. Where the logs do not say for
certain which life an entry belongs to, the mark is `~` for every life of that key, and nothing is concluded from how
they were told apart.

Who says how many lives there were: the publisher's own log if it is whole, else the routers, by the places in the
publisher's order (epoch, n) that they received the key at. A second transfer of what the publisher sent once is no new
life: that is how duplicates are found.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from failover.audit.decoding import SCHEMA, SPARK_SCHEMA
from topic.identity import KEY_LENGTH, NAME_LENGTH
from topic.journal import Event

LIFE_MARK, UNSURE_MARK = "#", "~"
ROW_FIELDS = (
    *("source", "role", "incarnation", "host", "place", "time", "hlc", "event"),
    *("peer", "subscriber", "epoch_hlc", "n"),
)


@attrs.frozen(slots=True)
class KeyRow:
    """What one entry says of one key, as far as it matters here."""

    source: str
    role: str
    incarnation: int
    host: str
    place: int
    time: int
    hlc: int
    event: int
    peer: str | None
    subscriber: str | None
    epoch_hlc: int | None
    n: int


Starts = Sequence[KeyRow]
Locate = Callable[[KeyRow], int]


def split_name(name: str) -> tuple[str, int]:
    """(key, which of its lives) of a delivery's name; 0 if the key was used once or nobody can tell."""
    key, mark, life = name[:KEY_LENGTH], name[KEY_LENGTH : KEY_LENGTH + 1], name[KEY_LENGTH + 1 :]
    return key, int(life) if mark == LIFE_MARK else 0


def reused() -> Column:
    """Whether this delivery is one of several lives of its key."""
    return F.length("key") > KEY_LENGTH


def unsure() -> Column:
    """Whether it is not certain which entries belong to this delivery."""
    return F.substring("key", KEY_LENGTH + 1, 1) == UNSURE_MARK


def tell_apart(rows: DataFrame, whole: Collection[str]) -> DataFrame:
    """The rows with the lives of keys used again named apart; `whole` are the publishers with whole logs. The same
    rows, not copies, if no key was."""
    published = F.count_if(F.col("event") == int(Event.PUBLISHED))
    received = (F.col("event") == int(Event.RECEIVED)) & (F.col("n") >= 0)
    places = F.size(F.collect_set(F.when(received, F.struct("epoch_hlc", "n"))))
    counts = rows.filter(F.col("key").isNotNull()).groupBy("key").agg(published.alias("p"), places.alias("places"))
    by_itself = F.substring("key", 1, NAME_LENGTH).isin(*whole) & (F.col("p") == 1)
    reused = counts.filter((F.col("p") > 1) | ((F.col("places") > 1) & ~by_itself)).select("key")
    if reused.isEmpty():
        return rows
    name: Any = partial(_name_lives, frozenset(whole))
    named = rows.join(reused, "key", "left_semi").select(*SCHEMA.names).groupBy("key")
    others = rows.join(reused, "key", "left_anti").select(*SCHEMA.names)
    return others.unionByName(named.applyInArrow(lambda table: name(table), SPARK_SCHEMA)).repartition("key")


def _name_lives(whole: frozenset[str], table: pa.Table) -> pa.Table:
    """The rows of one key, renamed."""
    key = table.column("key")[0].as_py()
    columns = (table.column(name).to_pylist() for name in ROW_FIELDS)
    rows = [KeyRow(*values) for values in zip(*columns, strict=True)]
    lives, certain = lives_of(rows, whole=key[:NAME_LENGTH] in whole)
    mark = LIFE_MARK if certain else UNSURE_MARK
    column = pa.array([f"{key}{mark}{life}" if max(lives) > 1 else key for life in lives], pa.string())
    return table.set_column(table.schema.get_field_index("key"), "key", column).select(SCHEMA.names).cast(SCHEMA)


def lives_of(rows: Sequence[KeyRow], *, whole: bool) -> tuple[list[int], bool]:
    """The life, from 1 on, that each row of one key belongs to, and whether that is certain. `whole`: the log of its
    publisher is."""
    publishing = _in_order(row for row in rows if row.role == "publisher")
    lives = {id(row): life for row, life in zip(publishing, _publications(publishing), strict=True)}
    clocks = _Clocks(publishing, _starts(rows), whole=whole)
    ordered = whole or len({row.incarnation for row in publishing}) <= 1
    for _, log in groupby(_in_order(row for row in rows if row.role == "router"), lambda row: row.source):
        lives |= _follow(list(log), (Event.RECEIVED, Event.PLACEHOLDER), clocks.of_router)
    for _, log in groupby(_in_order(row for row in rows if row.role == "subscriber"), lambda row: row.source):
        lives |= _of_subscriber(list(log), rows, lives, clocks)
    return [lives[id(row)] for row in rows], ordered and clocks.certain


def _in_order(rows: Iterable[KeyRow]) -> list[KeyRow]:
    return sorted(rows, key=lambda row: (row.source, row.incarnation, row.place))


def _publications(rows: Iterable[KeyRow]) -> Iterable[int]:
    life = 0
    for row in rows:
        life += row.event == Event.PUBLISHED
        yield max(life, 1)


def _starts(rows: Iterable[KeyRow]) -> list[KeyRow]:
    """Where each life began as far as routers know: at a new place in the same order, or after the publisher had
    settled. Received in another epoch without that, it is the same life, resumed at its next home."""
    told = sorted((row for row in rows if row.role == "router"), key=lambda row: (row.hlc, row.source, row.place))
    starts: list[KeyRow] = []
    known: set[tuple[int | None, int]] = set()
    epoch, ended = None, True
    for row in told:
        if row.event == Event.RECEIVED and row.n >= 0 and (row.epoch_hlc, row.n) not in known:
            if ended or row.epoch_hlc == epoch:
                starts.append(row)
            known.add((row.epoch_hlc, row.n))
            epoch, ended = row.epoch_hlc, False
        elif row.event in (Event.SETTLED, Event.ABANDONED) and row.peer is None:
            ended = True
    return starts


class _Clocks:
    """From clocks to lives: the wall clocks of hosts where it is known when each life began, and the hybrid clock."""

    def __init__(self, publishing: Sequence[KeyRow], starts: Starts, *, whole: bool) -> None:
        self.certain = True
        published = sum(row.event == Event.PUBLISHED for row in publishing)
        unreceived = published - len(starts)  # the last may never have reached a router
        told = unreceived <= 0 or (unreceived == 1 and publishing[-1].event == Event.PUBLISHED)
        self._by_stamp = told and (unreceived >= 0 or not whole or not published)
        self._stamps = [(row.hlc, row.source, row.place) for row in starts]
        self._walls: dict[str, list[int]] = {}
        self._guess = [row.time for row in starts]
        if self._by_stamp and (host := _only_host(starts)):
            self._walls[host] = self._guess
        self._own_host = _only_host(publishing) if whole else ""
        if whole and published:
            self._guess = _ends(publishing)
        if self._own_host:
            self._walls[self._own_host] = self._guess

    def of_router(self, row: KeyRow) -> int:
        """The publisher's own clock says it best; hybrid clocks do if no start is missing."""
        if self._by_stamp and (row.host != self._own_host or not self._own_host):
            return max(bisect_right(self._stamps, (row.hlc, row.source, row.place)), 1)
        return self.of_client(row)

    def of_client(self, row: KeyRow) -> int:
        walls = self._walls.get(row.host)
        if walls is None:
            self.certain = False
        return max(bisect_right(self._guess if walls is None else walls, row.time), 1)

    def known_at(self, host: str) -> bool:
        return host in self._walls


def _only_host(rows: Sequence[KeyRow]) -> str:
    """Where all of them were written; empty if that is not known or not one place."""
    hosts = {row.host for row in rows}
    return hosts.pop() if len(hosts) == 1 else ""


def _ends(publishing: Sequence[KeyRow]) -> list[int]:
    """When each publication may have begun: right after the last entry about the one before. Publications are
    gathered before they are logged, so their own time may be later than the transfer."""
    ends: list[int] = []
    for before, row in zip([None, *publishing], publishing, strict=False):
        if row.event == Event.PUBLISHED:
            ends.append(before.time if before else row.time)
    return ends


def _follow(log: Sequence[KeyRow], opening: Collection[int], locate: Locate) -> dict[int, int]:
    """The life of each row of a log: that of the opening row before it, as entries about the end of a life may come
    after the next has begun elsewhere."""
    lives: dict[int, int] = {}
    current, incarnation = 0, None
    for row in log:
        if row.event in opening or not current or row.incarnation != incarnation:
            current, incarnation = locate(row), row.incarnation
        lives[id(row)] = current
    return lives


def _of_subscriber(
    log: Sequence[KeyRow], rows: Iterable[KeyRow], known: dict[int, int], clocks: _Clocks
) -> dict[int, int]:
    """By the wall clock of its host; on an unknown host one by one, if it was handed the key as often as it was sent
    it."""
    handed = [row for row in log if row.event == Event.DELIVERED]
    if all(clocks.known_at(row.host) for row in log):
        return _follow(log, (Event.DELIVERED,), clocks.of_client)
    sent = [
        row
        for row in rows
        if row.role == "router" and row.event == Event.DELIVERED and row.subscriber == log[0].subscriber
    ]
    sent.sort(key=lambda row: (row.hlc, row.source, row.place))
    if not handed or len(sent) != len(handed):
        return _follow(log, (Event.DELIVERED,), clocks.of_client)
    order = [(row.incarnation, row.place) for row in handed]
    places = [known[id(row)] for row in sent]
    return _follow(
        log,
        (Event.DELIVERED,),
        lambda row: places[min(bisect_left(order, (row.incarnation, row.place)), len(places) - 1)],
    )
