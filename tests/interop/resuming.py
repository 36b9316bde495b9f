"""A publisher and a subscriber on rhea that bring their unsettled maps, as docs/clients.md asks clients to.

Each life of a link is a process of its own (`rhea_resuming.js`), which takes orders and reports what it sees. This
module keeps the state that has to outlive the process: the unsettled map, the generation, the epoch. It also keeps the
frames of each life in a list.
"""

import json
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
import trio

from router.mesh.quantities import Address
from tests.hangs import HANGS_S

HERE = Path(__file__).parent
NODE = shutil.which("node")
PATIENCE_S = HANGS_S
CREDIT = 10
IN_FLIGHT = 20


def require_rhea() -> None:
    if NODE is None or not (HERE / "node_modules").exists():
        pytest.skip("rhea needs node and tests/interop/node_modules (make setup)")


@attrs.frozen
class Transfer:
    """A transfer that came, with fields that rhea does not pass to its users."""

    tag: str
    body: str
    state: str | None = None
    resume: bool = False
    settled: bool = attrs.field(default=False, eq=False)
    aborted: bool = False


class Life:
    """One attach of a link, from its process's start to its end."""

    def __init__(self) -> None:
        self.process: trio.Process
        self.said: dict[str, str | None] = {}  # our map
        self.theirs: dict[str, str | None] | None = None  # the router's map
        self.attached = False
        self.timeout = 0  # granted
        self.closed = False
        self.changed = trio.Event()
        self.over = trio.Event()
        """The process has ended, and all its output is read."""

    async def tell(self, command: str, **what: object) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(json.dumps({"do": command, **what}).encode() + b"\n")


class ResumingLink:
    """A link whose `unsettled` is the map, keyed by tag: the outcome, or None."""

    role: ClassVar[str]
    answers = False
    """Whether it answers echoes. A subscriber does not: it may name no delivery in its map that it has read as
    settled."""

    def __init__(self, nursery: trio.Nursery, container: str, address: str) -> None:
        self._nursery = nursery
        self._own = {"container": container, "link": "link", "address": address, "credit": CREDIT}
        self.life: Life
        self.unsettled: dict[str, str | None] = {}
        self.generation: str | None = None
        self.epoch: str | None = None
        self._resumes = False

    async def attach(
        self, router: Address, *, credit: int = CREDIT, naming: Collection[str] | None = None
    ) -> dict[str, str | None] | None:
        """Attach at this router, with a null map the first time. Returns the router's map; None also if the router is
        lost. With only some tags in `naming`, our map is incomplete."""
        life = self.life = self._begin()
        life.said = {tag: state for tag, state in self.unsettled.items() if naming is None or tag in naming}
        told: dict[str, object] = {"generation": self.generation, "epoch": self.epoch, "credit": credit}
        told["answers"] = self.answers
        told |= {"unsettled": life.said if self._resumes else None, "incomplete": naming is not None}
        command = [str(NODE), str(HERE / "rhea_resuming.js"), self.role, str(router), json.dumps(self._own | told)]
        life.process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._nursery.start_soon(self._listen, life)
        await self.until(lambda: life.attached or life.closed)
        return life.theirs

    def _begin(self) -> Life:
        raise NotImplementedError

    async def vanish(self) -> None:
        """The client's process is killed. Its store stays."""
        self.life.process.kill()
        await self.life.over.wait()

    async def end(self) -> None:
        """Close the link: its terminus ends."""
        await self.life.tell("detach")
        await self.until(lambda: self.life.closed)

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE_S):
            while not condition():
                await self.life.changed.wait()

    async def _listen(self, life: Life) -> None:
        assert life.process.stdout is not None
        unread = b""
        try:
            async for data in life.process.stdout:
                *lines, unread = (unread + data).split(b"\n")
                for line in lines:
                    self._hear(life, **json.loads(line))
                life.changed.set()
                life.changed = trio.Event()
        finally:
            life.process.kill()
            with trio.CancelScope(shield=True):
                await life.process.wait()
            life.over.set()

    def _hear(self, life: Life, event: str, **what: Any) -> None:
        if event in ("closed", "disconnected"):
            life.closed = True
        else:
            getattr(self, f"_on_{event}")(life, **what)

    def _on_attached(self, life: Life, **what: Any) -> None:
        assert not what["incomplete"]
        life.attached, life.theirs, life.timeout = True, what["unsettled"], what["timeout"]
        self.generation, self.epoch, self._resumes = what["generation"], what["epoch"], True


class PublishingLife(Life):
    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, str] = {}
        self.sendable = False


class RheaPublisher(ResumingLink):
    role = "publish"
    life: PublishingLife

    def _begin(self) -> Life:
        return PublishingLife()

    async def send(self, *tags: str) -> None:
        """Send a message for each tag. The tag is also the body."""
        for tag in tags:
            self.unsettled[tag] = None
            await self.life.tell("transfer", tag=tag, body=tag, resume=False)

    async def resume(self, *, flagged: bool = True) -> None:
        """Resume by the two maps. Deliveries with an outcome are settled, as the router has read the outcome. Of the
        others, those in the router's map are transferred again with resume=true, and the rest is sent as new. If not
        `flagged`, all are ordinary transfers, as from a library without `resume`."""
        assert self.life.theirs is not None
        for tag, outcome in self.life.said.items():
            if outcome is not None:
                del self.unsettled[tag]
            else:
                await self.life.tell("transfer", tag=tag, body=tag, resume=flagged and tag in self.life.theirs)

    async def accepted(self, *tags: str) -> None:
        """Wait until these are accepted; they are not settled yet."""
        await self.until(lambda: all(self.life.outcomes.get(tag) == "accepted" for tag in tags))

    async def settle(self, *tags: str) -> None:
        for tag in tags:
            await self.life.tell("settle", tag=tag)
            del self.unsettled[tag]

    async def publish(self, count: int, elsewhere: Address) -> None:
        """Publish this many in a row, until all are accepted and settled. When the first router has gone, continue at
        `elsewhere`.
        """
        tags = deque(str(number) for number in range(count))
        while tags or self.unsettled:
            await self.until(lambda: self.life.closed or bool(self._told()) or self._has_room(tags))
            if self.life.closed:
                await self.attach(elsewhere)
                await self.resume()
                continue
            await self.settle(*self._told())
            while self._has_room(tags):
                await self.send(tags.popleft())

    def _has_room(self, tags: Collection[str]) -> bool:
        return bool(tags) and len(self.unsettled) < IN_FLIGHT

    def _told(self) -> list[str]:
        return [tag for tag, outcome in self.unsettled.items() if outcome is not None]

    def _on_sendable(self, life: PublishingLife) -> None:
        life.sendable = True

    def _on_outcome(self, life: PublishingLife, tag: str, outcome: str) -> None:
        assert tag not in life.outcomes
        life.outcomes[tag] = self.unsettled[tag] = outcome


class SubscribingLife(Life):
    def __init__(self) -> None:
        super().__init__()
        self.transfers: list[Transfer] = []
        self.settled: list[str] = []


class RheaSubscriber(ResumingLink):
    """A subscriber. `handed_out`: the bodies that its user has got, in order. `keys`: their delivery-tags."""

    role = "subscribe"
    life: SubscribingLife

    def __init__(self, nursery: trio.Nursery, container: str, address: str) -> None:
        super().__init__(nursery, container, address)
        self.handed_out: list[str] = []
        self.keys: dict[str, str] = {}

    def _begin(self) -> Life:
        return SubscribingLife()

    async def received(self, *bodies: str) -> None:
        """Wait until exactly these bodies were handed out in all."""
        await self.until(lambda: len(self.handed_out) >= len(bodies))
        assert self.handed_out == list(bodies)

    def undecided(self) -> list[str]:
        """Bodies without an outcome that this life has got. A delivery that its map has named has to come again before
        it can be answered.
        """
        here = {transfer.tag for transfer in self.life.transfers}
        return [body for body, key in self.keys.items() if key in here and self.unsettled.get(key, "settled") is None]

    async def accept(self, *bodies: str) -> None:
        for body in bodies:
            self.decide(body)
            await self.life.tell("accept", tag=self.keys[body])

    def decide(self, *bodies: str) -> None:
        """Accept without a link: the outcome is not sent yet."""
        for body in bodies:
            self.unsettled[self.keys[body]] = "accepted"

    async def consume(self, count: int, elsewhere: Address) -> None:
        """Accept messages until this many are settled. When the first router has gone, continue at `elsewhere`."""
        while not self._has_had(count):
            await self.until(lambda: self.life.closed or self._has_had(count) or bool(self.undecided()))
            if self.life.closed:
                await self.attach(elsewhere)
            else:
                await self.accept(*self.undecided())

    def _has_had(self, count: int) -> bool:
        return len(self.handed_out) >= count and not self.unsettled

    async def settled(self, *bodies: str) -> None:
        """Wait until the router has settled these in this life."""
        await self.until(lambda: all(self.keys[body] in self.life.settled for body in bodies))

    def _on_attached(self, life: Life, **what: Any) -> None:
        """Deliveries that the router's map lacks are settled."""
        super()._on_attached(life, **what)
        for key in life.said.keys() - (life.theirs or {}).keys():
            del self.unsettled[key]

    def _on_transfer(self, life: SubscribingLife, **what: Any) -> None:
        """A delivery that our map names is not handed out again. Its transfer may settle it."""
        transfer = Transfer(**what)
        life.transfers.append(transfer)
        if transfer.settled:
            self._on_settled(life, transfer.tag)
        elif transfer.tag not in self.unsettled:
            assert not transfer.resume, "only what our map names is resumed"
            self.handed_out.append(transfer.body)
            self.keys[transfer.body] = transfer.tag
            self.unsettled[transfer.tag] = None

    def _on_settled(self, life: SubscribingLife, tag: str) -> None:
        life.settled.append(tag)
        self.unsettled.pop(tag, None)
