"""Signs of life of one publisher's client: proof that it is alive, and attached here (protocol 6.6).

A sign is the client's answer to an echo that was sent after the question arose. If the client has not said in its
attach that it answers echoes, and has not answered one on this link, an acknowledgement of its machine counts instead
(`router.amqp.tcp`). So the router sends an echo when it answers the attach, before the result matters. At most one echo
is under way: a late answer must not count for a younger question.

`topic.home.liveness` knows the purpose of each question.
"""

from collections.abc import Callable
from typing import Protocol
from weakref import ref


class ProvingConnection(Protocol):
    def prove(self, told: Callable[[], None]) -> None: ...


class EchoedLink(Protocol):
    """The part of `router.amqp.proton.link.Link`, or of its substitute, that signs of life need."""

    @property
    def connection(self) -> ProvingConnection: ...

    def echo(self) -> None: ...


class LivingEnd(Protocol):
    """The end of a publisher's link at this router. The end owns its signs of life, which refer to it weakly: a cycle
    would wait for Python's garbage collector, which runs rarely (`router.garbage`)."""

    @property
    def echoed(self) -> EchoedLink: ...

    def alive(self, answered: bool) -> None:
        """Report a sign of life; called once for each question. `answered`: the client itself has answered an echo."""


class SignsOfLife:
    """Signs of life of the client behind one link that we receive from."""

    __slots__ = ("_covers", "_end", "_under_way", "_wanted", "answers")

    def __init__(self, end: LivingEnd, *, answers: bool) -> None:
        """`answers`: the client says that it answers echoes."""
        # If the client answers echoes, only an answer counts as a sign of life.
        self.answers = answers
        self._end = ref(end)
        self._wanted = False  # True while a question is open
        self._under_way = False  # True while an echo is under way
        self._covers = False  # True if the echo under way was sent after the question

    def begin(self) -> None:
        """Start when the attach has been answered."""
        if not self.answers:
            self._echo()

    def ask(self) -> None:
        """Ask for a sign of life. At most one question is open."""
        assert not self._wanted
        self._wanted = True
        self._covers = not self._under_way
        if self._covers:
            self._echo()
        if not self.answers:
            self._living.echoed.connection.prove(self.acknowledged)

    def end(self) -> None:
        """Drop the question, because the link attaches again: a later answer to it does not count."""
        self._wanted = False

    def answered(self) -> None:
        """Take the client's answer to the echo that was under way."""
        self.answers = True
        self._under_way = False
        if self._wanted and self._covers:
            self._tell()
        elif self._wanted:
            self._covers = True
            self._echo()

    def acknowledged(self) -> None:
        """The client's machine has acknowledged data that was written after the last question. The question may be
        answered already."""
        if self._wanted and not self.answers:
            self._tell()

    def _echo(self) -> None:
        self._under_way = True
        self._living.echoed.echo()

    def _tell(self) -> None:
        self._wanted = False
        if (end := self._end()) is not None:
            end.alive(self.answers)

    @property
    def _living(self) -> LivingEnd:
        end = self._end()
        assert end is not None, "it asks"
        return end
