"""What the parts of home have the whole decide. Each part is told of home as it is made."""

from typing import Protocol

from topic.delivery.record import AtHome, HomeStream, Question, Record


class Decisions(AtHome, Protocol):
    """The home of deliveries, as its parts see it: `topic.home.home`."""

    booted: bool
    """Else it answers no publisher yet (protocol 8)."""

    def evaluate(self, stream: HomeStream, records: list[Record]) -> None:
        """Fewer are awaited for these records: answer the publisher of those that nobody is awaited for."""

    def seek_all(self, records: list[Record], name: bytes) -> None:
        """Await this subscriber for these records, wherever it is."""

    def expire(self, stream: HomeStream, records: list[Record]) -> None:
        """The time of these is over, and nobody has any of them: end them."""

    def leave_out(self, stream: HomeStream, records: list[Record]) -> None:
        """These records go on without subscribers that have lapsed: end the links of these."""

    def answer_question(self, stream: HomeStream, question: Question, *, answered: bool) -> None:
        """The publisher was there after the question came up. It has `answered` itself, or its machine has."""
