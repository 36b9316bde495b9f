"""Signs of life of one publisher's client: what shows that it is alive, and attached here (protocol 6.6).

Its word is the answer to an echo that was sent after the question came up. For a client that has not said in its attach
that it answers, and has not answered any on this link, its machine's acknowledgement stands in for that
(`router.amqp.tcp`). So it is asked once as its attach is answered, before it matters. There is never more than one echo
under way: an answer that is late must not be taken for that to a younger question.

Never here: what the question is for (`topic.home.liveness`).
"""

from collections.abc import Callable
from typing import Protocol
from weakref import ref


class ProvingConnection(Protocol):
    def prove(self, told: Callable[[], None]) -> None: ...


class EchoedLink(Protocol):
    """What is asked of `router.amqp.proton.link.Link`, or of what stands for it."""

    @property
    def connection(self) -> ProvingConnection: ...

    def echo(self) -> None: ...


class LivingEnd(Protocol):
    """Our end of the link: it has the signs, and they do not keep it. Else each would be left to Python's search for
    cycles, which is rare (`router.garbage`)."""

    @property
    def echoed(self) -> EchoedLink: ...

    def alive(self, answered: bool) -> None:
        """Told once for each question, with whether it was the client's own word."""


class SignsOfLife:
    """Of the client behind one link that we receive from."""

    __slots__ = ("_covers", "_end", "_under_way", "_wanted", "answers")

    def __init__(self, end: LivingEnd, *, answers: bool) -> None:
        """`answers`: the client says that it answers echoes."""
        self.answers = answers  # it does, or has: only that counts
        self._end = ref(end)
        self._wanted = False  # there is a question
        self._under_way = False  # an echo is
        self._covers = False  # which was sent after the question came up

    def begin(self) -> None:
        """Its attach has been answered."""
        if not self.answers:
            self._echo()

    def ask(self) -> None:
        """A question came up; one at a time."""
        assert not self._wanted
        self._wanted = True
        self._covers = not self._under_way
        if self._covers:
            self._echo()
        if not self.answers:
            self._living.echoed.connection.prove(self.acknowledged)

    def end(self) -> None:
        """The link is attached anew: what was asked before is not asked any more, so an answer to it is none."""
        self._wanted = False

    def answered(self) -> None:
        """The client has answered the echo that was under way."""
        self.answers = True
        self._under_way = False
        if self._wanted and self._covers:
            self._tell()
        elif self._wanted:
            self._covers = True
            self._echo()

    def acknowledged(self) -> None:
        """Its machine has, after the last question; perhaps after that was answered."""
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
