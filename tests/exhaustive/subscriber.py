"""The model subscriber: it accepts in order, and keeps unsettled deliveries in its map (protocol 6.8 and 7.2)."""

from collections.abc import Callable

import attrs

from tests.exhaustive.clients import ACCEPTED, REJECTED, RELEASED, Client, Did, Frame, Message, Stage, Violation, check
from topic.identity import Epoch


@attrs.frozen
class Held:
    """An entry of a subscriber's unsettled map."""

    key: bytes
    message: Message
    outcome: int = 0
    """Accepted (that is, processed) or rejected; 0 before that."""
    arrived: bool = True
    """Whether the delivery was transferred on this connection: only then can the subscriber send an outcome."""
    owed: bool = False
    """Whether the delivery was processed before it was transferred again, so that its outcome is still to be sent."""
    stated: bool = False
    """Whether the map of this attach stated its outcome."""
    named: bool = True
    """Whether the map of this attach has it."""


@attrs.frozen
class Subscriber(Client):
    held: tuple[Held, ...] = ()
    processed: tuple[Message, ...] = ()
    """Sorted, as the order between publishers is not promised."""
    refusals: int = 0
    """How often it may still refuse a message."""
    refused: tuple[Message, ...] = ()
    """The messages that it has rejected or released. A released message may come again, after later ones."""

    def unsettled(self) -> tuple[tuple[bytes, int], ...]:
        return tuple((h.key, h.outcome) for h in self.held)

    def attach(self, complete: bool) -> Did:
        named = self._map(complete)
        keys = [key for key, _ in named]
        held = tuple(self._begun(h, h.key in keys) for h in self.held)
        return attrs.evolve(self, held=held)._begin(complete, named, None)

    @staticmethod
    def _begun(held: Held, named: bool) -> Held:
        return attrs.evolve(held, arrived=False, owed=False, stated=named and held.outcome != 0, named=named)

    def acts(self) -> list[str]:
        acts = ["echo"] if self.echo else []
        undecided = next((h for h in self.held if not h.outcome), None)
        if undecided is not None:
            acts.append("process")
            acts += ["reject", "release"] * bool(self.refusals and undecided.arrived)
        if any(h.owed for h in self.held):
            acts.append("restate")
        return acts

    def act(self, what: str) -> Did:
        if what == "echo":
            return self._answer_echo()
        if what == "restate":
            held = next(h for h in self.held if h.owed)
            return Did(self._with(attrs.evolve(held, owed=False)), ("outcome", held.key, held.outcome))
        held = next(h for h in self.held if not h.outcome)
        if what in ("reject", "release"):
            return self._refuse(held, REJECTED if what == "reject" else RELEASED)
        frame = ("outcome", held.key, ACCEPTED) if held.arrived else None
        done = self._with(attrs.evolve(held, outcome=ACCEPTED))
        return Did(attrs.evolve(done, processed=self._process(held.message)), frame)

    def _refuse(self, held: Held, outcome: int) -> Did:
        """Reject or release a message. The subscriber forgets a released message, which comes again."""
        kept = self._with(attrs.evolve(held, outcome=outcome)).held
        if outcome == RELEASED:
            kept = tuple(h for h in self.held if h is not held)
        refused = tuple(sorted({*self.refused, held.message}))
        done = attrs.evolve(self, held=kept, refused=refused, refusals=self.refusals - 1)
        return Did(done, ("outcome", held.key, outcome))

    def _process(self, message: Message) -> tuple[Message, ...]:
        publisher, number = message
        earlier = [n for p, n in self.processed if p == publisher]
        check(number not in earlier, "1 exactly once", f"subscriber {self.index} processes {message} again")
        in_order = message in self.refused or all(n < number for n in earlier if (publisher, n) not in self.refused)
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

    def _answered(self, epoch: Epoch, ours: tuple[tuple[bytes, int], ...] | None) -> Did:
        check(self.stage is Stage.ATTACHING, "one answer", f"an attach in stage {self.stage.name} is answered")
        check(ours is not None or not self.resumes, "resumed map", "a map is answered with none")
        listed = dict(ours or ())
        answered = attrs.evolve(self, stage=Stage.ATTACHED, resumes=True, epoch=epoch)
        return answered._forget(tuple(h.key for h in self.held if h.named and h.key not in listed))

    def _deliver(self, key: bytes, payload: bytes) -> Did:
        message = (payload[0], payload[1])
        held = self._find(key)
        check(held is None, "resumed transfer", f"{message} comes without resume=true though we have it")
        check(not self.partial, "resumed map", f"{message} comes after a map that is incomplete")
        self._check_order(message)
        return Did(attrs.evolve(self, held=(*self.held, Held(key, message))))

    def _check_order(self, message: Message) -> None:
        publisher, number = message
        for h in self.held:
            if h.message[0] == publisher and not h.arrived and not h.outcome:
                check(h.message[1] > number, "1 order", f"{message} is transferred before {h.message} comes again")

    def _resume(self, key: bytes, payload: bytes) -> Did:
        held = self._find(key)
        if held is None:
            raise Violation("resumed transfer", f"{payload!r} comes with resume=true though the map lacks it")
        check(held.named, "resumed map", f"{held.message} is transferred again though the map has left it out")
        check(not held.stated, "1 exactly once", f"{held.message}, its outcome stated, is transferred again")
        check(not held.arrived, "1 exactly once", f"{held.message} is transferred twice on one connection")
        return Did(self._with(attrs.evolve(held, arrived=True, owed=held.outcome != 0)))

    def _restated(self, key: bytes, settled: bool) -> Did:
        held = self._find(key)
        if held is None:
            raise Violation("resumed transfer", "a state is resumed of what the map lacks")
        if settled:
            return self._forget((key,))
        check(held.outcome != 0, "resumed transfer", f"{held.message}, not processed, comes without its payload")
        return Did(self._with(attrs.evolve(held, arrived=True)))

    def _forget(self, keys: tuple[bytes, ...]) -> Did:
        gone = [h for h in self.held if h.key in keys]
        kept = tuple(h for h in self.held if h.key not in keys)
        forgot = tuple(h.message for h in gone if h.outcome)
        missed = tuple(h.message for h in gone if not h.outcome)
        return Did(attrs.evolve(self, held=kept), forgot=forgot, missed=missed)
