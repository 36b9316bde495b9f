"""Shows a run to the user: as a live table on a terminal, otherwise as plain lines.

Both show each fault when it strikes, and when it ends. The table shows the state of each client, and what routers wait
for at present. The plain view prints the same in one line every few seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import attrs
import trio
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from failover.chaos.clients import Member, RunningClients
from failover.chaos.mesh import Life
from failover.chaos.nemesis import Nemesis
from router.entities.rates import rate
from router.text.fitting import Fitting

REFRESH_S: Final = 0.5
LINE_S: Final = 5.0
MOST_WAITS: Final = 8


@attrs.define
class Board:
    """The part of a run's state that a view shows."""

    clients: RunningClients
    nemesis: Nemesis
    offered: float = 0.0
    """The number of messages per second that all publishers offer at present."""
    waits: Sequence[str] = ()
    """The links that routers wait for. Each line names one link."""


class View(Protocol):
    def tell(self, text: str) -> None:
        """Show the user a line about an event."""

    def phase(self, text: str) -> None:
        """Show that a part of the run begins, which `text` names."""

    async def run(self, board: Board) -> None:
        """Show the board again and again, until this task is cancelled."""


class Rates:
    """Computes how many messages per second there were since the last call."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}

    def rate(self, name: str, count: int) -> float:
        now = trio.current_time()
        since, before = self._last.get(name, (now, count))
        self._last[name] = now, count
        return rate(before, count, now - since)


class PlainView:
    def __init__(self, out: Console) -> None:
        self._out = out
        self._started = trio.current_time()

    def tell(self, text: str) -> None:
        self._out.print(f"{trio.current_time() - self._started:6.1f}s  {text}", soft_wrap=True)

    def phase(self, text: str) -> None:
        self.tell(text)

    async def run(self, board: Board) -> None:
        rates = Rates()
        while True:
            self.tell(self._line(board, rates))
            await trio.sleep(LINE_S)

    @staticmethod
    def _line(board: Board, rates: Rates) -> str:
        """The line that shows the board: rates, faults in force, and waits.

        The line shows waits only if the mesh accepts at most half of the offered load. In a mesh under load, some
        delivery always waits.
        """
        sent, accepted, received = (
            rates.rate(what, board.clients.total(what)) for what in ("sent", "accepted", "received")
        )
        offered = board.offered
        line = f"offered {offered:g}/s, " if offered else ""
        line += f"published {sent:.0f}/s, accepted {accepted:.0f}/s, received {received:.0f}/s"
        in_force = [f"{struck.word} {', '.join(struck.targets)}" for struck in board.nemesis.in_force]
        waits = board.waits[:MOST_WAITS] if accepted <= offered / 2 else ()
        return "; ".join([line, *in_force, *waits])


class LiveView:
    def __init__(self, out: Console) -> None:
        self._out = out
        self._started = trio.current_time()
        self._phase = ""

    def tell(self, text: str) -> None:
        """Print a line about an event above the table."""
        self._out.print(Text(f"{trio.current_time() - self._started:6.1f}s  ", style="dim") + Text(text))

    def phase(self, text: str) -> None:
        self._phase = text
        self.tell(text)

    async def run(self, board: Board) -> None:
        rates = Rates()
        with Live(console=self._out, auto_refresh=False, transient=True) as live:
            while True:
                live.update(self._picture(board, rates), refresh=True)
                await trio.sleep(REFRESH_S)

    def _picture(self, board: Board, rates: Rates) -> RenderableType:
        elapsed = trio.current_time() - self._started
        parts: list[RenderableType] = ["", Text(f"{elapsed:6.1f}s  {self._phase}", style="bold")]
        parts += [clients_table(board.clients.members.values(), rates), _routers(board.nemesis.mesh.lives)]
        in_force = [struck.text for struck in board.nemesis.in_force]
        if in_force:
            parts.append(Text("\n".join(in_force), style="red"))
        if board.waits:
            parts.append(Text("\n".join(board.waits[:MOST_WAITS]), style="yellow"))
        return Group(*parts)


def clients_table(members: Iterable[Member], rates: Rates) -> Fitting:
    table = Table("Client", "Router", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("Published", "/s", "Accepted", "/s", "Received", "/s"):
        table.add_column(heading, justify="right")
    for member in members:
        table.add_row(*_row(member, rates))
    return Fitting(table, "/s", "Accepted")


def _routers(lives: Mapping[str, Life]) -> Text:
    said = [
        Text(name, style="green") if life is Life.UP else Text(f"{name} {life.name.lower()}", style="red")
        for name, life in lives.items()
    ]
    return Text("routers ") + Text("  ").join(said)


def _seat(member: Member) -> Text:
    if member.attached:
        return Text(member.router or "", "green")
    if member.finished:
        return Text("finished", "green")
    if member.router is None:
        return Text("none yet", "yellow")
    return Text(f"({member.router})" if member.running else "dead", "red")


def _row(member: Member, rates: Rates) -> list[Text]:
    cells = [Text(member.name, style="bold"), _seat(member)]
    for what, role in (("sent", "publisher"), ("accepted", "publisher"), ("received", "subscriber")):
        count = member.counts[what]
        per_s = rates.rate(f"{member.name} {what}", count)
        cells += [Text(str(count)), Text(f"{per_s:.0f}")] if member.client.role == role else [Text(), Text()]
    return cells
