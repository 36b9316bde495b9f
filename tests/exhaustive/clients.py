"""The model clients: a publisher and a subscriber that resume, as values with pure functions.

A client hears at once what its router sends, until its connection is cut; what it does is an act of its own, at any
time, and arrives at once too. That loses no behaviour: a frame that takes long to reach a client might as well be sent
late, one that takes long to reach its router might as well be an act that comes late; what is still under way when the
connection is cut are acts after the cut, and what a router says just before it dies is said to deaf ears. The publisher
transfers in order and settles what it knows the outcome of; the subscriber accepts in order and keeps in its map what
is not settled. Both bring their maps when they attach again (protocol 6.8 and 7.2). Frames are plain tuples.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import attrs

from topic.record import Outcome

ACCEPTED = int(Outcome.ACCEPTED)

Frame = tuple[Any, ...]
Message = tuple[int, int]
"""Publisher and number: also the payload, as two bytes."""


class Violation(Exception):
    """An invariant of protocol 9 does not hold: its name, and what happened."""

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
    """Of one message, at its publisher."""

    UNSENT = 0
    IN_DOUBT = 1
    KNOWN = 2
    """Accepted, not settled."""
    STATED = 3
    """The same, and the map of the last attach said so."""
    SETTLED = 4


@attrs.frozen
class Did:
    """What a client did or learned."""

    client: Any
    """Its new state."""
    frame: Frame | None = None
    """For its router."""
    told: tuple[int, ...] = ()
    """Numbers of the messages whose acceptance a publisher has just learned."""
    forgot: tuple[Message, ...] = ()
    """What a subscriber has just forgotten, processed."""
    missed: tuple[Message, ...] = ()
    """What it was told is settled, and has not processed."""


@attrs.frozen
class Client:
    index: int
    choices: tuple[int, ...]
    """Where it attaches next: one of these routers."""
    stage: Stage = Stage.AWAY
    cut: bool = False
    """Nothing reaches it any more on its connection; it will attach again."""
    serial: int = 0
    """Counts its connections."""
    epoch: int = 0
    """The highest that it was told, as a hybrid clock: echoed at its next attach."""
    resumes: bool = False
    """It was attached once, so that it has a map."""
    echo: bool = False
    """It was asked for a sign of life."""

    @property
    def attaches(self) -> bool:
        return self.cut or self.stage is Stage.AWAY

    def acts(self) -> list[str]:
        """What it may do now, by the names that `act` takes."""
        raise NotImplementedError

    def lose(self, choices: tuple[int, ...]) -> Did:
        """Its connection is cut, for whatever reason."""
        return Did(attrs.evolve(self, cut=True, choices=choices))

    def _answer_echo(self) -> Did:
        return Did(attrs.evolve(self, echo=False), ("echo",))


@attrs.frozen
class Publisher(Client):
    phases: tuple[Phase, ...] = ()
    generation: bytes | None = None
    echoes: bool = True
    """It names its generation when it attaches."""
    again: tuple[tuple[int, bool], ...] = ()
    """What it transfers again on this attach, before anything new: number, and whether with resume=true."""

    def attach(self) -> Did:
        phases = tuple(Phase.STATED if phase is Phase.KNOWN else phase for phase in self.phases)
        states = {Phase.IN_DOUBT: 0, Phase.STATED: ACCEPTED}
        unsettled = tuple((_tag(n), states[phase]) for n, phase in enumerate(phases) if phase in states)
        frame = ("attach", self.generation if self.echoes else None, self.epoch, unsettled if self.resumes else None)
        begun = attrs.evolve(self, phases=phases, again=(), stage=Stage.ATTACHING, cut=False, echo=False)
        return Did(attrs.evolve(begun, serial=self.serial + 1), frame)

    def acts(self) -> list[str]:
        acts = ["echo"] if self.echo else []
        if self.stage is Stage.ATTACHED:
            if self.again or Phase.UNSENT in self.phases:
                acts.append("transfer")
            if Phase.KNOWN in self.phases:
                acts.append("settle")
        return acts

    def act(self, what: str) -> Did:
        if what == "echo":
            return self._answer_echo()
        if what == "settle":
            number = self.phases.index(Phase.KNOWN)
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

    def _answered(self, epoch: int, generation: bytes, ours: tuple[tuple[bytes, int], ...] | None) -> Did:
        check(self.stage is Stage.ATTACHING, "one answer", f"an attach in stage {self.stage.name} is answered")
        check(
            self.generation in (None, generation) or not self.resumes,
            "same generation",
            "a publisher that resumes is told a new generation: what it has in doubt stays so",
        )
        listed = dict(ours or ())
        again: list[tuple[int, bool]] = []
        for number, phase in enumerate(self.phases):
            if phase is Phase.IN_DOUBT:
                again.append((number, _tag(number) in listed))
            else:
                check(_tag(number) not in listed, "resumed map", f"message {number}, {phase.name}, is listed")
        known = Phase.STATED, Phase.KNOWN
        phases = tuple(Phase.SETTLED if phase in known else phase for phase in self.phases)
        answered = attrs.evolve(self, stage=Stage.ATTACHED, resumes=True, generation=generation, epoch=epoch)
        return Did(attrs.evolve(answered, phases=phases, again=tuple(again)))

    def _outcome(self, tags: tuple[bytes, ...], outcome: int) -> Did:
        phases, numbers = list(self.phases), [_number(tag) for tag in tags]
        check(outcome == ACCEPTED, "accepted", f"{numbers} have outcome {outcome:#x} though everybody accepts")
        for number in numbers:
            transferred = phases[number] is Phase.IN_DOUBT and number not in dict(self.again)
            check(transferred, "one outcome", f"message {number} is answered in phase {phases[number].name}")
            phases[number] = Phase.KNOWN
        return Did(attrs.evolve(self, phases=tuple(phases)), told=tuple(numbers))


@attrs.frozen
class Held:
    """An entry of a subscriber's unsettled map."""

    key: bytes
    message: Message
    accepted: bool = False
    arrived: bool = True
    """Transferred on this connection: only then can an outcome be sent."""
    owed: bool = False
    """Processed before it was transferred again: its outcome is to be sent."""
    stated: bool = False
    """The map of this attach said that it is accepted."""


@attrs.frozen
class Subscriber(Client):
    held: tuple[Held, ...] = ()
    processed: tuple[Message, ...] = ()
    """Sorted: the order between publishers is nobody's promise."""

    def attach(self) -> Did:
        held = tuple(attrs.evolve(h, arrived=False, owed=False, stated=h.accepted) for h in self.held)
        unsettled = tuple((h.key, ACCEPTED if h.accepted else 0) for h in held)
        frame = ("attach", None, self.epoch, unsettled if self.resumes else None)
        begun = attrs.evolve(self, held=held, stage=Stage.ATTACHING, cut=False, echo=False)
        return Did(attrs.evolve(begun, serial=self.serial + 1), frame)

    def acts(self) -> list[str]:
        acts = ["echo"] if self.echo else []
        if any(not h.accepted for h in self.held):
            acts.append("process")
        if any(h.owed for h in self.held):
            acts.append("restate")
        return acts

    def act(self, what: str) -> Did:
        if what == "echo":
            return self._answer_echo()
        if what == "restate":
            held = next(h for h in self.held if h.owed)
            return Did(self._with(attrs.evolve(held, owed=False)), ("accept", held.key))
        held = next(h for h in self.held if not h.accepted)
        frame = ("accept", held.key) if held.arrived else None
        done = self._with(attrs.evolve(held, accepted=True))
        return Did(attrs.evolve(done, processed=self._process(held.message)), frame)

    def _process(self, message: Message) -> tuple[Message, ...]:
        publisher, number = message
        earlier = [n for p, n in self.processed if p == publisher]
        check(number not in earlier, "1 exactly once", f"subscriber {self.index} processes {message} again")
        in_order = all(n < number for n in earlier)
        check(in_order, "1 order", f"subscriber {self.index} processes {message} after {earlier}")
        return tuple(sorted((*self.processed, message)))

    def _find(self, key: bytes) -> Held | None:
        return next((h for h in self.held if h.key == key), None)

    def _with(self, held: Held) -> "Subscriber":
        return attrs.evolve(self, held=tuple(held if h.key == held.key else h for h in self.held))

    def hear(self, frame: Frame) -> Did:
        kind, *rest = frame
        if kind == "echo":
            return Did(attrs.evolve(self, echo=True))
        heard: dict[str, Callable[..., Did]] = {
            "answered": self._answered, "deliver": self._deliver, "resume": self._resume,
            "restated": self._restated, "settle": self._forget,
        }  # fmt: skip
        return heard[kind](*rest)

    def _answered(self, epoch: int, ours: tuple[tuple[bytes, int], ...] | None) -> Did:
        check(self.stage is Stage.ATTACHING, "one answer", f"an attach in stage {self.stage.name} is answered")
        check(ours is not None or not self.resumes, "resumed map", "a map is answered with none")
        listed = dict(ours or ())
        answered = attrs.evolve(self, stage=Stage.ATTACHED, resumes=True, epoch=epoch)
        return answered._forget(tuple(h.key for h in self.held if h.key not in listed))

    def _deliver(self, key: bytes, payload: bytes) -> Did:
        message = (payload[0], payload[1])
        held = self._find(key)
        check(held is None, "resumed transfer", f"{message} comes without resume=true though the map names it")
        self._check_order(message)
        return Did(attrs.evolve(self, held=(*self.held, Held(key, message))))

    def _check_order(self, message: Message) -> None:
        publisher, number = message
        for h in self.held:
            if h.message[0] == publisher and not h.arrived and not h.accepted:
                check(h.message[1] > number, "1 order", f"{message} is transferred before {h.message} comes again")

    def _resume(self, key: bytes, payload: bytes) -> Did:
        held = self._find(key)
        if held is None:
            raise Violation("resumed transfer", f"{payload!r} comes with resume=true though the map lacks it")
        check(not held.stated, "1 exactly once", f"{held.message}, stated as accepted, is transferred again")
        check(not held.arrived, "1 exactly once", f"{held.message} is transferred twice on one connection")
        return Did(self._with(attrs.evolve(held, arrived=True, owed=held.accepted)))

    def _restated(self, key: bytes, settled: bool) -> Did:
        held = self._find(key)
        if held is None:
            raise Violation("resumed transfer", "a state is resumed of what the map lacks")
        if settled:
            return self._forget((key,))
        check(held.accepted, "resumed transfer", f"{held.message}, not processed, comes without its payload")
        return Did(self._with(attrs.evolve(held, arrived=True)))

    def _forget(self, keys: tuple[bytes, ...]) -> Did:
        gone = [h for h in self.held if h.key in keys]
        kept = tuple(h for h in self.held if h.key not in keys)
        forgot = tuple(h.message for h in gone if h.accepted)
        missed = tuple(h.message for h in gone if not h.accepted)
        return Did(attrs.evolve(self, held=kept), forgot=forgot, missed=missed)


def _tag(number: int) -> bytes:
    return bytes((number,))


def _number(tag: bytes) -> int:
    return tag[0]
