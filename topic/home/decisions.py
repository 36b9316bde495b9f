"""The decisions that the parts of a home leave to the whole. Each part gets the home at its construction."""

from typing import Protocol

from topic.delivery.record import AtHome, HomeStream, Question, Record


class Decisions(AtHome, Protocol):
    """The home of deliveries, as its parts see it: `topic.home.home`."""

    booted: bool
    """Until the home has booted it answers no publisher (protocol 8)."""

    def decide(self, stream: HomeStream, records: list[Record]) -> None:
        """Fewer outcomes are awaited for these records: answer the publisher for the records that await none."""

    def seek_all(self, records: list[Record], name: bytes) -> None:
        """Await this subscriber for these records, wherever it is."""

    def expire(self, stream: HomeStream, records: list[Record]) -> None:
        """The time of these records is over, and no subscriber has any of them: end them."""

    def leave_out(self, stream: HomeStream, records: list[Record]) -> None:
        """The home goes on with these records without lapsed subscribers: end the links of these subscribers."""

    def answer_question(self, stream: HomeStream, question: Question, *, answered: bool) -> None:
        """The publisher gave a sign of life after the question: it has `answered`, or its machine has acknowledged the
        bytes."""
