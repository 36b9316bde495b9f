"""The player of golden scenarios of a queue: it reads a script's commands, and writes the effects of each.

python -m tests.topic.queues.script        # writes all traces anew

The lines are those of `tests.golden.trace`, and lines for the replicas' messages about log entries. A message has its
text as its name, on its way into the queue and out of it. Messages about links, room and elections, and messages
without deliveries, are left out.

| command | what happens |
| --- | --- |
| `mesh a b c d` | routers: a, b and c are the voters of a set with one queue, and a leads |
| `bind` | the queue is bound to a topic |
| `dead letters go to queue/dead` | those of the queue |
| `p publishes at d` | a publisher that resumes |
| `p publishes to the topic at d` | a publisher of the topic |
| `p publishes at d with [2 3]` | it comes again, and has not settled these |
| `p sends 1 2`, `p settles 1` | |
| `s consumes at d`, `s consumes plainly at d` | a consumer that resumes, and one that does not |
| `t subscribes at d` | a subscriber of the topic |
| `s accepts 1`, `s releases 1`, `s rejects 1` | |
| `kill a` | the process ends, and the others notice |
| `wait 5` | seconds |
| `queue`, `queue queue/dead` | what is in the queue, or in another, by the replica of each voter |
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from linkstate.mesh_actions import ContactLost
from tests.golden.trace import TracedBench
from tests.topic.bench import LASTING, pen_at
from tests.topic.clients import NEWS, Pen, Reader
from tests.topic.queues.bench import QUEUE, SET, QueueBench
from topic.actions import LinkAction, Note
from topic.delivery.outcomes import DeliveryOutcome
from topic.identity import (
    NAME_LENGTH,
    LinkIdentity,
    dead_letter_address,
    dead_letter_ingress_of,
    egress_address,
    egress_of,
    ingress_address,
    ingress_of,
    link_name,
)
from topic.queues.leader.letters import letters_to
from topic.queues.operations import Configure, QueueSettings, read_operation
from topic.queues.positions import Run, each_of, position_of
from topic.queues.proposals import (
    FIRST,
    Dequeue,
    Enqueue,
    Expire,
    Free,
    Posted,
    Proposal,
    Reject,
    Reserve,
    Settled,
    Transact,
    Unreserve,
    read_proposal,
)
from topic.queues.state import read_entry
from topic.queues.wire import SETS, decode
from topic.raft import messages as say
from topic.raft.log import Entry

SCENARIOS = sorted((Path(__file__).parent / "golden").glob("*.txt"))
PROMPT = "> "
SHOWN = ("Forward", "Outcome", "Settle ", "Resolve", "Fenced")
"""The beginnings of shown messages between routers about deliveries."""


def play(text: str) -> str:
    """The script with its present traces: they replace everything except commands, comments and empty lines."""
    lines: list[str] = []
    player = Player()
    for line in text.splitlines():
        if not line.startswith("  "):
            lines.append(line)
        if line.startswith(PROMPT):
            lines += [f"  {said}" for said in player.play(line.removeprefix(PROMPT))]
    return "".join(f"{line}\n" for line in lines)


class TracedQueueBench(TracedBench, QueueBench):
    """A bench that appends to `lines`."""

    def __init__(self, routers: Iterable[str]) -> None:
        self._texts: dict[bytes, str] = {}
        """Delivery key -> message."""
        self._enqueued: dict[int, str] = {}
        """Position -> message."""
        super().__init__([*routers], (), ())
        self._links = {link_name(ingress_of(SET)): "ingress", link_name(egress_of(SET, QUEUE)): "egress"}
        self._links[link_name(dead_letter_ingress_of(SET))] = "ingress of dead letters"

    def know(self, client: str, address: str) -> None:
        self.call(link_name(LinkIdentity(client, "link", address)), client)

    def call(self, link: bytes, name: str) -> None:
        self._links[link] = name

    def carry(self, here: str, there: str, payload: bytes) -> None:
        if payload.startswith(SETS):
            if said := "; ".join(self._of_set(payload)):
                self.lines.append(f"{here} → {there}   {said}")
            QueueBench.carry(self, here, there, payload)
            return
        super().carry(here, there, payload)
        head, _, said = self.lines.pop().partition("   ")
        if shown := [part for part in said.split("; ") if part.startswith(SHOWN)]:
            self.lines.append(f"{head}   {'; '.join(shown)}")

    def saw(self, router: str, action: LinkAction | ContactLost | Note) -> None:
        super().saw(router, action)
        line = self.lines.pop()
        if not isinstance(action, ContactLost | Note):
            self.lines.append(line.replace("attached, a life, ", "attached, "))

    def link(self, name: bytes) -> str:
        return self._links.get(name, "a link")

    def life(self, publisher: str, generation: bytes) -> str:
        return "a life"

    def entry(self, packed: list[Any]) -> str:
        return ""

    def delivery(self, key: bytes, message: bytes | None) -> str:
        if message:
            self._texts[key] = message.decode()
        return self.deliveries([key])

    def deliveries(self, keys: Iterable[bytes]) -> str:
        return " ".join(self._texts.get(key) or f"one of the {self.link(key[:NAME_LENGTH])}" for key in keys)

    def _of_set(self, payload: bytes) -> Iterator[str]:
        _, message = decode(payload)
        body = message.body if isinstance(message, say.Envelope) else None
        if isinstance(body, say.Append) and body.entries:
            said = (self._entry(index, entry) for index, entry in enumerate(body.entries, body.previous + 1))
            yield f"Append {', '.join(said)}"
        elif isinstance(body, say.Append):
            yield f"decided up to {body.commit}"
        elif isinstance(body, say.Stored):
            yield f"stored up to {body.index}"
        elif isinstance(body, say.Lead):
            yield f"Lead in term {body.term}"

    def _entry(self, index: int, entry: Entry) -> str:
        if not entry.data:
            return f"{index} begin of the term"
        _, parts = read_entry(entry.data)
        is_proposal = parts[0] >= FIRST
        return f"{index} {self._proposal(index, read_proposal(parts)) if is_proposal else _operation(parts)}"

    def _proposal(self, index: int, asked: Proposal) -> str:
        match asked:
            case Enqueue():
                texts = [message.decode() for message in asked.messages]
                self._enqueued |= {position_of(index, place): text for place, text in enumerate(texts)}
                return f"Enqueue {' '.join(texts)}"
            case Settled():
                return f"Settled {self.deliveries(asked.keys)}" if asked.keys else "Settled nothing"
            case Reserve():
                return f"Reserve {self._at(asked.runs)} for {asked.consumer.identity.container}"
            case Free():
                return f"Free {self._at(asked.runs)}{', failed' if asked.failed else ''}"
            case Dequeue():
                return f"Dequeue {self._at(asked.runs) or 'nothing'}"
            case Reject():
                return f"Reject {self._at(asked.runs)}"
            case Expire():
                return f"Expire {self._at(asked.runs)}"
            case Unreserve():
                return f"Unreserve {self._at(asked.runs)}"
            case Posted():
                return f"Posted {self._at(asked.runs)}{'' if asked.taken else ', not taken'}"
            case Transact():
                texts = [message.decode() for message in asked.messages]
                self._enqueued |= {position_of(index, place): text for place, text in enumerate(texts)}
                taken = [self._at(one.runs) for one in asked.retires]
                return f"Transact {' '.join(texts)} for {' '.join(taken)}"

    def _at(self, runs: Sequence[Run]) -> str:
        return " ".join(self._enqueued[position] for position in each_of(runs))


def _operation(parts: list[Any]) -> str:
    asked = read_operation(parts)
    settings = f", {asked.settings}" if isinstance(asked, Configure) else ""
    return f"{type(asked).__name__} {asked.name}{settings}"


class Player:
    def __init__(self) -> None:
        self._bench: TracedQueueBench
        self._pens: dict[str, Pen] = {}
        self._readers: dict[str, Reader] = {}

    def play(self, command: str) -> list[str]:
        for pattern, act in _WORDS.items():
            if found := re.fullmatch(pattern, command):
                act(self, *found.groups())
                said, self._bench.lines = self._bench.lines, []
                return said
        raise ValueError(f"{command}: no such command")

    def mesh(self, routers: str) -> None:
        self._bench = TracedQueueBench(routers.split())
        self._bench.lines.clear()

    def bind(self) -> None:
        node = self._bench.at("a").node
        queue = self._bench.sets("a").state(SET).get(QUEUE)
        assert queue is not None
        node.ask(Configure(QUEUE, queue.id, queue.version, QueueSettings(bind=(NEWS,))))
        self._bench.collect("a")
        self._bench.flow()
        [entry] = node.topic.directory.subscribers(NEWS)
        self._bench.call(entry.name, "binding")

    def publish(self, name: str, topic: str | None, router: str, state: str | None) -> None:
        address = NEWS if topic else ingress_address(SET, QUEUE)
        self._bench.know(name, address)
        unsettled = None if state is None else {tag.encode(): 0 for tag in state.split()}
        self._pens[name] = pen_at(
            self._bench, router, self._pens.get(name), name=name, address=address, unsettled=unsettled
        )

    def send(self, name: str, messages: str) -> None:
        self._pens[name].send(*(message.encode() for message in messages.split()))

    def settle(self, name: str, messages: str) -> None:
        self._pens[name].settle(*(message.encode() for message in messages.split()))

    def consume(self, name: str, plain: str | None, router: str) -> None:
        self._attach(name, router, egress_address(SET, QUEUE), **({} if plain else {"lifetime": LASTING}))

    def subscribe(self, name: str, router: str) -> None:
        self._attach(name, router, NEWS, lifetime=LASTING)

    def _attach(self, name: str, router: str, address: str, **options: Any) -> None:
        self._bench.know(name, address)
        self._readers[name] = self._bench.subscriber(router, name, address=address, **options)

    def answer(self, name: str, verb: str, messages: str) -> None:
        outcome = _VERBS[verb]
        self._readers[name].answer(outcome, *(message.encode() for message in messages.split()))

    def kill(self, router: str) -> None:
        self._bench.stop(router)

    def wait(self, seconds: str) -> None:
        self._bench.wait(int(seconds))

    def queue(self, queue: str | None) -> None:
        for name in self._bench.names:
            if name in "abc":
                state = self._bench.sets(name).state(SET)
                known = state.get(queue or QUEUE)
                messages = state.messages.of(known.id).kept.values() if known is not None else ()
                self._bench.lines.append(f"{name}   {b' '.join(messages).decode() or 'nothing'}")

    def give_dead_letters(self, address: str) -> None:
        self._bench.configure(QUEUE, dead_letter=address)
        self._bench.call(link_name(letters_to(SET, dead_letter_address(SET, address))), "outbox")


_VERBS: Final = {
    "accepts": DeliveryOutcome.ACCEPTED,
    "releases": DeliveryOutcome.RELEASED,
    "rejects": DeliveryOutcome.REJECTED,
}
_WORDS: dict[str, Callable[..., None]] = {
    r"mesh (.+)": Player.mesh,
    r"bind": Player.bind,
    r"(\w) publishes( to the topic)? at (\w)(?: with \[(.*)\])?": Player.publish,
    r"(\w) sends (.+)": Player.send,
    r"(\w) settles (.+)": Player.settle,
    r"(\w) consumes( plainly)? at (\w)": Player.consume,
    r"(\w) subscribes at (\w)": Player.subscribe,
    r"(\w) (accepts|releases|rejects) (.+)": Player.answer,
    r"kill (\w)": Player.kill,
    r"wait (\d+)": Player.wait,
    r"queue(?: (.+))?": Player.queue,
    r"dead letters go to (.+)": Player.give_dead_letters,
}


if __name__ == "__main__":
    for path in SCENARIOS:
        path.write_text(play(path.read_text()))
