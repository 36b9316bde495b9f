"""The report of `publish`: its progress, and the outcomes of its messages."""

import sys
from collections import Counter
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from failover.client import Handle
from failover.client.outcome import Outcome
from router.mesh.errors import RunError
from router.text.printable import printable

MOST_REASONS: Final = 5
"""The summary lists at most this number of reasons for rejections."""
OTHER_REASONS: Final = "other reasons"
NO_REASON: Final = "no reason given"
WIDE: Final = 60
"""On a terminal with fewer columns than this, the progress has no bar and no time, only the text and the numbers."""


class Account:
    """The outcomes that messages have got so far."""

    def __init__(self, address: str, count: int | None, *, keeps: bool = False) -> None:
        self._address = address
        self._keeps = keeps
        self.count = count  # the number of all messages to send; None if unknown
        self.begun = 0
        self.outcomes: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        """Maps each reason for rejections to its number of messages. A reason is the condition and the description of
        the error."""
        self.open: dict[Handle, None] = {}  # the deliveries without an outcome, in the order of sending
        self.alone = 0  # the number of messages that were accepted without a subscriber
        self.error: RunError | None = None  # the error with which the source has failed
        self.interrupted = False

    @property
    def is_well(self) -> bool:
        done = self.outcomes["accepted"] == self.outcomes.total() == self.begun
        return done and self.error is None and not self.interrupted

    @property
    def progress(self) -> int | None:
        """The number of messages that have an outcome. None if the command awaits no outcome at present."""
        return self.outcomes.total() if self.open else None

    def expect(self, more: int) -> None:
        self.count = self.count + more if self.count is not None else None

    def begin(self, delivery: Handle) -> None:
        self.begun += 1
        self.open[delivery] = None

    def end(self, delivery: Handle) -> None:
        del self.open[delivery]
        assert delivery.result is not None
        self.outcomes[delivery.result] += 1
        if delivery.result is Outcome.REJECTED:
            self._reject(delivery)

    def _reject(self, delivery: Handle) -> None:
        said = delivery.detail
        reason = ": ".join(part for part in (said.condition, said.description) if part) or NO_REASON
        self.rejected[reason if reason in self.rejected or len(self.rejected) < MOST_REASONS else OTHER_REASONS] += 1

    @property
    def kept(self) -> int:
        """The number of messages that stay in the state file, for a later run to send."""
        return sum(delivery.stored for delivery in self.open) if self._keeps else 0

    def as_json(self) -> dict[str, object]:
        """The final account as JSON."""
        sent = sum(delivery.transferred for delivery in self.open)
        return {
            "address": self._address,
            "begun": self.begun,
            "outcomes": dict(self.outcomes),
            "rejected": dict(self.rejected),
            "sent_but_not_answered": sent,
            "accepted_by_nobody": self.alone,
            "kept": self.kept,
            "error": str(self.error) if self.error is not None else None,
        }

    def tally(self) -> str:
        """The summary in words. Each reason for rejections has a line of its own.

        The summary counts messages without an outcome as *sent but not answered* (they may have been delivered), *still
        to be sent* (a later run with the state file sends them) or *never sent*.
        """
        for delivery in [delivery for delivery in self.open if delivery.told]:
            self.end(delivery)
        sent = sum(delivery.transferred for delivery in self.open)
        waiting = self._keeps * sum(delivery.stored and not delivery.transferred for delivery in self.open)
        unsent = len(self.open) - sent - waiting + (self.count - self.begun if self.count is not None else 0)
        parts = [f"{number} {outcome}" for outcome, number in self.outcomes.items() if outcome != "accepted"]
        parts += [f"{sent} sent but not answered"] if sent else []
        parts += [f"{waiting} still to be sent"] if waiting else []
        parts += [f"{unsent} never sent"] if unsent else []
        if accepted := self.outcomes["accepted"]:
            parts.insert(len(parts) if self.alone else 0, f"{accepted} accepted{self._by_nobody(accepted)}")
        whole = ", ".join(parts) or ("nothing sent" if self.interrupted or self.error else "nothing to publish")
        return "\n".join([whole, *(f"{number} rejected: {printable(why)}" for why, number in self.rejected.items())])

    def _by_nobody(self, accepted: int) -> str:
        if not self.alone:
            return ""
        which = f"{self.alone} of them " if self.alone < accepted else ""
        return f", {which}without a subscriber at {self._address}"


class Bar:
    """Shows the progress as a bar, unless the user types messages on the terminal."""

    def __init__(self, out: Console, address: str, count: int | None) -> None:
        typed_on = count is None and sys.stdin is not None and sys.stdin.isatty()
        self.shown = out.is_terminal and not typed_on
        self._address = address
        self._out = out
        words = TextColumn("{task.description}", markup=False)
        columns = (words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        narrow = (words, MofNCompleteColumn())
        self._bars = Progress(*(columns if out.width >= WIDE else narrow), console=out, disable=not self.shown)
        self._task = self._bars.add_task(address, total=count)
        if typed_on:
            out.print("one message per line; Ctrl-D ends")

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self, count: int | None) -> None:
        self._bars.update(self._task, total=count)

    def advance(self) -> None:
        self._bars.advance(self._task)

    def tell(self, what: str) -> None:
        """Print a line above the progress bar."""
        self._out.print(what, soft_wrap=True)

    def say(self, what: str) -> None:
        """Show the reason of a wait. An empty text means that there is no wait."""
        if self.shown:
            self._bars.update(self._task, description=what or self._address)
        elif what:
            self._out.print(f"{what} at {self._address}", soft_wrap=True)

    def stop(self) -> None:
        self._bars.stop()
