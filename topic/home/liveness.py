"""Signs that a publisher is alive and attached here (protocol 6.6, Evidence).

A home may be a zombie: its publisher may have moved, behind a partition, and may have settled there the deliveries that
are in doubt or unread here. The home may have to give a delivery to a subscriber that may have been elsewhere, or to
call a delivery settled that it does not have. Before it does, the publisher must answer an echo that was sent after the
question came up. Full contact proves nothing: a router may be cut off but not yet missed. Questions to a suspended
publisher wait for its next attach.

The same answer says that the publisher has read all earlier outcomes (6.5, Gate). An acknowledgement of the publisher's
machine does not say this. The home decides what follows from an answer.
"""

from topic.actions import Echo
from topic.delivery.record import HomeStream, Question
from topic.delivery.records import RecordTable
from topic.home.decisions import Decisions
from topic.outlet import Outlet


class Liveness:
    """The questions of one router to its publishers; per stream in `HomeStream.questions`."""

    def __init__(self, outlet: Outlet, records: RecordTable, home: Decisions) -> None:
        """`home` gets each question that is answered."""
        self.outlet = outlet
        self.records = records
        self._home = home

    def question(self, stream: HomeStream, question: Question) -> None:
        """Ask for a sign of life. If the question waits already, only a later sign counts."""
        stream.question(question)
        self.ask(stream)

    def ask(self, stream: HomeStream) -> None:
        """Send an echo if there are questions, the publisher can answer, and no echo is under way. With two echoes, a
        late answer to the first would be taken for the second's."""
        if stream.questions and stream.answered and stream.link is not None and stream.echo_covers is None:
            stream.echo()
            self.outlet.actions.append(Echo(stream.link))

    def alive(self, stream: HomeStream, *, answered: bool) -> None:
        """The publisher has given a sign of life after the last echo: it has `answered`, or its machine has
        acknowledged the bytes."""
        for question in stream.proven():
            self._home.answer_question(stream, question, answered=answered)
        if stream.withheld:
            self.records.unblocked.append(stream)
        self.ask(stream)
