"""The model clients, as values with pure functions: what all clients share, and the publisher.

A client receives at once what its router sends, until its connection is cut. Each act of a client happens at any time,
and arrives at once, too. This loses no behaviour. A frame that takes long to reach a client is like one that is sent
late. A frame that takes long to reach its router is like a late act. Frames that are under way when the connection is
cut are acts after the cut. Frames that a router sends just before it dies go to deaf clients. The publisher transfers
in order and settles deliveries whose outcome it knows. The subscriber accepts in order and keeps unsettled deliveries
in its map. Both bring their maps when they attach again (protocol 6.8 and 7.2). A client that leaves a part of its map
out does nothing new, and attaches once more. Frames are plain tuples.
"""

from enum import IntEnum
from typing import Any

import attrs

from topic.delivery.outcomes import DeliveryOutcome
from topic.identity import NOWHERE, Epoch

ACCEPTED, REJECTED, RELEASED = (
    int(DeliveryOutcome.ACCEPTED),
    int(DeliveryOutcome.REJECTED),
    int(DeliveryOutcome.RELEASED),
)
Frame = tuple[Any, ...]
Message = tuple[int, int]
"""(publisher, number). It is also the payload, as two bytes."""


class Violation(Exception):
    """An invariant of protocol 9 does not hold: the invariant's name, and what happened."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


def check(holds: bool, invariant: str, detail: str) -> None:
    if not holds:
        raise Violation(invariant, detail)


class Stage(IntEnum):
    AWAY = 0
    ATTACHING = 1
    ATTACHED = 2


class Phase(IntEnum):
    """The phase of one message at its publisher."""

    UNSENT = 0
    IN_DOUBT = 1
    KNOWN = 2
    """Accepted or rejected, and not settled."""
    STATED = 3
    """Like KNOWN, and the map of the last attach named the outcome."""
    SETTLED = 4
    LOST = 5
    """In doubt for good, as the publisher's life has ended."""


@attrs.frozen
class Did:
    """The result of a client's act, or of a frame that it got."""

    client: Any
    """The client's new state."""
    frame: Frame | None = None
    """The frame for its router, if any."""
    told: tuple[int, ...] = ()
    """Numbers of the messages whose acceptance a publisher has just learned."""
    refused: tuple[int, ...] = ()
    """Numbers of the messages whose rejection a publisher has just learned."""
    renewed: bool = False
    """Whether a publisher got a new generation though it was attached before."""
    resumed: bool = False
    """Whether a publisher got its own generation again."""
    forgot: tuple[Message, ...] = ()
    """The messages that a subscriber has just forgotten, after it had sent their outcomes."""
    missed: tuple[Message, ...] = ()
    """Messages that a router settled although the subscriber has not processed them."""


@attrs.frozen
class Client:
    index: int
    choices: tuple[int, ...]
    """The client attaches next at one of these routers."""
    stage: Stage = Stage.AWAY
    cut: bool = False
    """The client's connection is cut: no frame reaches the client there, and the client will attach again."""
    serial: int = 0
    """The number of its latest connection."""
    epoch: Epoch = NOWHERE
    """The highest epoch that the client got. The client echoes this epoch at its next attach."""
    resumes: bool = False
    """Whether the client was ever attached, so that it has a map."""
    echo: bool = False
    """Whether a router has asked the client for a sign of life."""
    partial: bool = False
    """Whether the client's attach has left out a part of its map, so that the client will attach again."""
    born: int = 0
    """A lower bound for the clocks of all attaches of its present life, except in its first life."""

    @property
    def is_connected(self) -> bool:
        return self.stage is not Stage.AWAY and not self.cut

    @property
    def attaches(self) -> bool:
        return not self.is_connected or (self.partial and self.stage is Stage.ATTACHED)

    def unsettled(self) -> tuple[tuple[bytes, int], ...]:
        """The client's whole map, the oldest entry first. The keys are tags for a publisher, and delivery keys for a
        subscriber."""
        raise NotImplementedError

    def _map(self, complete: bool) -> tuple[tuple[bytes, int], ...]:
        unsettled = self.unsettled()
        return unsettled if complete else unsettled[: len(unsettled) // 2]

    def _begin(self, complete: bool, unsettled: tuple[tuple[bytes, int], ...], generation: bytes | None) -> Did:
        frame = ("attach", generation, self.epoch, unsettled if self.resumes else None, complete)
        begun = attrs.evolve(self, stage=Stage.ATTACHING, cut=False, echo=False, partial=not complete)
        choices = self.choices if complete else ()
        return Did(attrs.evolve(begun, serial=self.serial + 1, choices=choices), frame)

    def acts(self) -> list[str]:
        """The acts that the client may do now, by the names that `act` takes."""
        raise NotImplementedError

    def lose(self, choices: tuple[int, ...]) -> Did:
        """Its connection is cut."""
        return Did(attrs.evolve(self, cut=True, choices=choices))

    def leave(self, born: int) -> Did:
        """A router detaches the client's link, which has expired. The client begins afresh, and keeps its messages."""
        return Did(attrs.evolve(self, stage=Stage.AWAY, echo=False, partial=False, choices=(), born=born))

    def _answer_echo(self) -> Did:
        return Did(attrs.evolve(self, echo=False), ("echo",))


@attrs.frozen
class Publisher(Client):
    phases: tuple[Phase, ...] = ()
    generation: bytes | None = None
    echoes: bool = True
    """Whether it names its generation when it attaches."""
    again: tuple[tuple[int, bool], ...] = ()
    """The messages that the publisher transfers again on this attach, before new ones: each number, and whether with
    resume=true."""
    rejected: tuple[int, ...] = ()
    """Numbers of the messages that a subscriber has refused."""
    unnamed: tuple[int, ...] = ()
    """Numbers of the messages that the map of this attach has left out."""

    def unsettled(self) -> tuple[tuple[bytes, int], ...]:
        return tuple((_tag(n), self._state(n)) for n, phase in enumerate(self.phases) if phase in _IN_MAP)

    def _state(self, number: int) -> int:
        if self.phases[number] is Phase.IN_DOUBT:
            return 0
        return REJECTED if number in self.rejected else ACCEPTED

    def attach(self, complete: bool) -> Did:
        named = self._map(complete)
        numbers = [_number(tag) for tag, _ in named]
        said = [(n, Phase.STATED if phase is Phase.KNOWN and n in numbers else phase) for n, phase in self._numbered]
        unnamed = tuple(n for n, phase in self._numbered if phase in _IN_MAP and n not in numbers)
        stated = attrs.evolve(self, phases=tuple(phase for _, phase in said), again=(), unnamed=unnamed)
        return stated._begin(complete, named, self.generation if self.echoes else None)

    @property
    def _numbered(self) -> list[tuple[int, Phase]]:
        return list(enumerate(self.phases))

    def _known(self) -> list[int]:
        """The messages that it can settle on this link."""
        return [n for n, phase in self._numbered if phase is Phase.KNOWN and n not in self.unnamed]

    def acts(self) -> list[str]:
        acts = ["echo"] if self.echo else []
        if self.stage is Stage.ATTACHED:
            if self.again or (Phase.UNSENT in self.phases and not self.partial):
                acts.append("transfer")
            if self._known():
                acts.append("settle")
        return acts

    def act(self, what: str) -> Did:
        if what == "echo":
            return self._answer_echo()
        if what == "settle":
            number = self._known()[0]
            return Did(self._with(number, Phase.SETTLED), ("settle", _tag(number)))
        if self.again:
            (number, resume), *later = self.again
            return Did(attrs.evolve(self, again=tuple(later)), self._transfer(number, resume))
        number = self.phases.index(Phase.UNSENT)
        return Did(self._with(number, Phase.IN_DOUBT), self._transfer(number, False))

    def _transfer(self, number: int, resume: bool) -> Frame:
        return "transfer", _tag(number), bytes((self.index, number)), resume

    def _with(self, number: int, phase: Phase) -> "Publisher":
        return attrs.evolve(self, phases=(*self.phases[:number], phase, *self.phases[number + 1 :]))

    def hear(self, frame: Frame) -> Did:
        if frame[0] == "answered":
            return self._answered(*frame[1:])
        if frame[0] == "outcome":
            return self._outcome(*frame[1:])
        assert frame == ("echo",), f"not for a publisher: {frame}"
        return Did(attrs.evolve(self, echo=True))

    def _answered(self, epoch: Epoch, generation: bytes, ours: tuple[tuple[bytes, int], ...] | None) -> Did:
        check(self.stage is Stage.ATTACHING, "one answer", f"an attach in stage {self.stage.name} is answered")
        listed = dict(ours or ())
        again: list[tuple[int, bool]] = []
        for number, phase in self._numbered:
            if phase is Phase.IN_DOUBT and number not in self.unnamed:
                again.append((number, _tag(number) in listed))
            else:
                check(_tag(number) not in listed, "resumed map", f"message {number}, {phase.name}, is listed")
        phases = tuple(Phase.SETTLED if phase is Phase.STATED else phase for phase in self.phases)
        answered = attrs.evolve(self, stage=Stage.ATTACHED, resumes=True, generation=generation, epoch=epoch)
        if self.resumes and self.generation != generation:
            return answered._begin_anew(phases)
        return Did(attrs.evolve(answered, phases=phases, again=tuple(again)), resumed=self.resumes)

    def _begin_anew(self, phases: tuple[Phase, ...]) -> Did:
        """The publisher's life has ended. It must not send its messages in doubt again, and settles the messages whose
        outcome it knows."""
        ended = {Phase.IN_DOUBT: Phase.LOST, Phase.KNOWN: Phase.SETTLED}
        begun = attrs.evolve(self, phases=tuple(ended.get(phase, phase) for phase in phases), unnamed=(), partial=False)
        return Did(attrs.evolve(begun, born=self.epoch.hlc), renewed=True)

    def _outcome(self, tags: tuple[bytes, ...], outcome: int) -> Did:
        phases, numbers = list(self.phases), [_number(tag) for tag in tags]
        check(outcome in (ACCEPTED, REJECTED), "one outcome", f"{numbers} have outcome {outcome:#x}")
        for number in numbers:
            open = phases[number] is Phase.IN_DOUBT and number not in (*dict(self.again), *self.unnamed)
            check(open, "one outcome", f"message {number} is answered in phase {phases[number].name}")
            phases[number] = Phase.KNOWN
        if outcome == ACCEPTED:
            return Did(attrs.evolve(self, phases=tuple(phases)), told=tuple(numbers))
        known = attrs.evolve(self, phases=tuple(phases), rejected=(*self.rejected, *numbers))
        return Did(known, refused=tuple(numbers))


_IN_MAP = (Phase.IN_DOUBT, Phase.KNOWN, Phase.STATED)


def _tag(number: int) -> bytes:
    return bytes((number,))


def _number(tag: bytes) -> int:
    return tag[0]
