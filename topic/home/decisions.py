"""The methods of a home that its own parts call. Each part gets the home as an argument when it is made."""

from typing import Protocol

from topic.delivery.record import AtHome, HomeStream, Question, Record


class Decisions(AtHome, Protocol):
    """A home as its parts see it; `topic.home.home` implements it."""

    booted: bool
    """Whether the home has booted. Until then it answers no publisher (protocol 8)."""

    def decide(self, stream: HomeStream, records: list[Record]) -> None:
        """Answer the publisher for each of these records for which no outcome is awaited any more."""

    def seek_all(self, records: list[Record], name: bytes) -> None:
        """Await this subscriber for these records, wherever it is attached."""

    def expire(self, stream: HomeStream, records: list[Record]) -> None:
        """End these records: their time to live is over, and no subscriber has any of them."""

    def leave_out(self, stream: HomeStream, records: list[Record]) -> None:
        """End the links of the lapsed subscribers that these records no longer await."""

    def answer_question(self, stream: HomeStream, question: Question, *, answered: bool) -> None:
        """Act on a question that the publisher's sign of life has answered. `answered`: the publisher itself has
        answered; otherwise its machine has acknowledged the bytes."""
