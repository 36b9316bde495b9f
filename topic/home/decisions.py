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
        """Await this subscriber for these records, wherever it is attached now."""

    def expire(self, stream: HomeStream, records: list[Record]) -> None:
        """End these records: their time to live is over, and no subscriber has any of them."""

    def leave_out(self, stream: HomeStream, records: list[Record]) -> None:
        """End the links of lapsed subscribers: the home accepts these records without them."""

    def answer_question(self, stream: HomeStream, question: Question, *, answered: bool) -> None:
        """The publisher has given a sign of life that answers this question: act on it. `answered`: the publisher
        itself has answered; otherwise its machine has acknowledged the bytes."""
