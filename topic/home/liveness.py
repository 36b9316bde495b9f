"""Asks publishers for signs that they are alive and still attached here (protocol 6.6, Evidence).

A home may be a zombie. Its publisher may have moved to the other side of a partition, and may have settled there
deliveries that are still in doubt here. Two acts of the home would then be wrong: to give a delivery to a subscriber
that may have been elsewhere, and to call a delivery settled because this home does not have it.

So before such an act the publisher has to answer an echo that was sent after the question came up. Contact with all
routers proves nothing, because a cut may not be noticed yet. Questions to a suspended publisher wait for its next
attach.

The same answer shows that the publisher has read all earlier outcomes (6.5, Gate). An acknowledgement of the bytes by
the publisher's machine does not show this. The home decides what follows from an answer.
"""

from topic.actions import Echo
from topic.delivery.record import HomeStream, Question
from topic.delivery.records import RecordTable
from topic.home.decisions import Decisions
from topic.outlet import Outlet


class Liveness:
    """The questions of one router to its publishers. `HomeStream.questions` has the questions of one stream."""

    def __init__(self, outlet: Outlet, records: RecordTable, home: Decisions) -> None:
        """`home` answers questions of other routers. When a publisher gives a sign of life, `home` gets the questions
        that waited for it."""
        self.outlet = outlet
        self.records = records
        self._home = home

    def question(self, stream: HomeStream, question: Question) -> None:
        """Ask the publisher for a sign of life, for this question. If the same question already waits, only a sign
        after this call counts."""
        stream.question(question)
        self.ask(stream)

    def ask(self, stream: HomeStream) -> None:
        """Send an echo if there are questions, the publisher can answer, and no echo is under way. Two echoes are never
        under way together, because a late answer to the first echo would count for the second one."""
        if stream.questions and stream.answered and stream.link is not None and stream.echo_covers is None:
            stream.echo()
            self.outlet.actions.append(Echo(stream.link))

    def alive(self, stream: HomeStream, *, answered: bool) -> None:
        """Handle a sign of life that came after the last echo. `answered`: the publisher itself has answered; otherwise
        its machine has acknowledged the bytes."""
        for question in stream.proven():
            self._home.answer_question(stream, question, answered=answered)
        if stream.withheld:
            self.records.unblocked.append(stream)
        self.ask(stream)
