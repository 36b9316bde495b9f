"""Signs that a publisher is alive and attached here (protocol 6.6, Evidence).

A home may be a zombie: its publisher went on elsewhere, behind a partition, and settled there what is in doubt here, or
still to be read here. So before home gives anything to a subscriber that may have been elsewhere, or calls settled what
it has not got, the publisher must answer an echo that was sent after the question came up. Full contact proves nothing:
a router may be cut off but not yet missed. Questions to a suspended publisher wait for its next attach.

The same answer says that the publisher has read what it was told before (6.5, Gate). Its machine's acknowledgement does
not. What is done with an answer is not decided here.
"""

from topic.actions import Echo
from topic.delivery.record import HomeStream, Question
from topic.delivery.records import RecordTable
from topic.home.decisions import Decisions
from topic.outlet import Outlet


class Liveness:
    """The questions of one router to its publishers; per stream in `HomeStream.questions`."""

    def __init__(self, outlet: Outlet, records: RecordTable, home: Decisions) -> None:
        """`home` is told of each question that is answered."""
        self.outlet = outlet
        self.records = records
        self._home = home

    def question(self, stream: HomeStream, question: Question) -> None:
        """Ask for a sign of life. If the same was asked before, only a sign from now on counts."""
        stream.question(question)
        self.ask(stream)

    def ask(self, stream: HomeStream) -> None:
        """Send an echo if there are questions, the publisher can answer, and no echo is under way: two would be one too
        many, as the first answer, late, would be taken for the second."""
        if stream.questions and stream.answered and stream.link is not None and stream.echo_covers is None:
            stream.echo()
            self.outlet.actions.append(Echo(stream.link))

    def alive(self, stream: HomeStream, *, answered: bool) -> None:
        """The publisher was there after it was asked last. It has `answered`, or its machine has."""
        for question in stream.proven():
            self._home.answer_question(stream, question, answered=answered)
        if stream.withheld:
            self.records.unblocked.append(stream)
        self.ask(stream)
