"""The loops of the hot path: one operation on many deliveries at once, with proton's functions.

There are two implementations. `loops.c` is used if it could be compiled when the project was installed: it makes one
call for all deliveries, not a dozen for each. Otherwise, or with ONCEMESH_INTERPRETED=1 in the environment, the Python
code here is used. `LOOPS` is the implementation in use. A handle is proton's pointer. The callers (`Inbox`,
`LinkDeliveries`) decide what the results mean.
"""

import os
import threading
from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from router.amqp.format.values import Handle
from router.amqp.proton.library import MEMORY, SCRATCH_SIZE, as_tag, ffi, lib, tag_of

_DELIVERY: Final = lib.PN_DELIVERY
_NOTHING: Final = lib.PN_TRANSPORT
"""A kind of event that we ignore. Proton puts such events between others."""


class Came(NamedTuple):
    """Whole messages, in the order of their arrival. Messages that the sender has settled are settled here, too."""

    handles: list[Handle]
    tags: list[bytes]
    messages: list[bytes]
    settled: list[bool]


NOTHING: Final = Came([], [], [], [])


class Loops:
    """The implementation of the loops in Python."""

    is_compiled = False

    def transfers(self, collector: Any, link: Any, most: int) -> Came:
        """Take the next events off the collector, as long as each is a transfer on this link, of a whole message in one
        frame, with more than 0 and less than `most` bytes."""
        peek, pop, type_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
        came, scratch = Came([], [], [], []), MEMORY.scratch
        while event := peek(collector):
            kind = type_of(event)
            if kind == _DELIVERY and lib.pn_event_link(event) == link:
                delivery = lib.pn_event_delivery(event)
                if not lib.pn_delivery_readable(delivery) or lib.pn_delivery_partial(delivery):
                    break
                size = lib.pn_delivery_pending(delivery)
                if not 0 < size < most or lib.pn_delivery_aborted(delivery):
                    break
                lib.pn_link_recv(link, scratch, SCRATCH_SIZE)
                settled = lib.pn_delivery_settled(delivery)
                came.tags.append(tag_of(delivery))
                came.messages.append(ffi.unpack(scratch, size))
                came.handles.append(delivery)
                came.settled.append(settled)
                if settled:
                    # If a delivery is settled, proton makes the next delivery of the link the current one, too.
                    lib.pn_delivery_settle(delivery)
                else:
                    lib.pn_link_advance(link)
            elif kind != _NOTHING:
                break
            pop(collector)
        return came

    def news(self, collector: Any, link: Any, *, sends: bool) -> list[Handle]:
        """Take the next events off the collector, as long as each concerns a delivery on this link: a sent one if
        `sends`, else a received one. Returns the handles."""
        peek, pop, type_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
        handles: list[Handle] = []
        while event := peek(collector):
            kind = type_of(event)
            if kind == _DELIVERY and lib.pn_event_link(event) == link:
                delivery = lib.pn_event_delivery(event)
                if not sends and lib.pn_delivery_readable(delivery):
                    break
                handles.append(delivery)
            elif kind != _NOTHING:
                break
            pop(collector)
        return handles

    def states(self, handles: Sequence[Handle]) -> tuple[list[int], list[bool]]:
        """Returns, for each delivery, the peer's latest state, and whether the peer has settled it."""
        return list(map(lib.pn_delivery_remote_state, handles)), list(map(lib.pn_delivery_settled, handles))

    def settle(self, handles: Sequence[Handle]) -> None:
        settle = lib.pn_delivery_settle
        for handle in handles:
            settle(handle)

    def update(self, handles: Sequence[Handle], state: int) -> None:
        """Set our state of each delivery."""
        update = lib.pn_delivery_update
        for handle in handles:
            update(handle, state)

    def transfer(self, link: Any, tags: Sequence[bytes], messages: Sequence[bytes], *, settled: bool) -> list[Handle]:
        """Send whole messages. Returns their handles, which are invalid already if `settled`."""
        make, send = lib.pn_delivery, lib.pn_link_send
        handles = []
        for tag, message in zip(tags, messages, strict=True):
            delivery = make(link, as_tag(tag))
            send(link, message, len(message))
            if settled:
                # If a delivery is settled, proton makes the next delivery of the link the current one, too.
                lib.pn_delivery_settle(delivery)
            else:
                lib.pn_link_advance(link)
            handles.append(delivery)
        return handles


class Results(threading.local):
    """Each thread's memory for the results of one call (`Memory`): handles, whether they are settled, sizes, and the
    bytes with a view of them."""

    def __init__(self, module: Any, most: int, room: int) -> None:
        out = module.new("char[]", room)
        self.memory = (
            ffi.new("pn_delivery_t *[]", most),
            module.new("bool[]", most),
            module.new("uint32_t[]", 2 * most),
            out,
            module.buffer(out),
        )


class CompiledLoops(Loops):
    is_compiled = True

    FEW: Final = 4
    """Smaller batches use the Python loop: without much load, most batches have one delivery."""
    MOST: Final = 4096
    """The highest number of events in one call."""
    ROOM: Final = 2 * SCRATCH_SIZE
    """The highest number of bytes received in one call. This is at least `SCRATCH_SIZE` and the length of a tag."""
    JOINED: Final = 4 << 10
    """The longest message, in bytes, that is copied to be sent together with others."""
    FUNCTIONS: Final = (
        "pn_collector_peek",
        "pn_collector_pop",
        "pn_event_type",
        "pn_event_link",
        "pn_event_delivery",
        "pn_delivery_readable",
        "pn_delivery_partial",
        "pn_delivery_aborted",
        "pn_delivery_pending",
        "pn_delivery_tag",
        "pn_delivery_settled",
        "pn_delivery_remote_state",
        "pn_delivery_settle",
        "pn_delivery_update",
        "pn_delivery",
        "pn_link_advance",
        "pn_link_recv",
        "pn_link_send",
    )
    """The functions of proton that `loops.c` calls, in the order in which it gets them."""

    def __init__(self, module: Any) -> None:
        self._lib, self._new = module.lib, module.ffi.new
        functions = [module.ffi.cast("void *", ffi.addressof(lib, name)) for name in self.FUNCTIONS]
        if not self._lib.init(functions, len(functions), _DELIVERY, _NOTHING):
            raise ImportError("the compiled module loops.c does not match loops.py: install the project again")
        self._results = Results(module.ffi, self.MOST, self.ROOM)

    def transfers(self, collector: Any, link: Any, most: int) -> Came:
        handles, settled, sizes, out, view = self._results.memory
        count = self._lib.transfers(collector, link, most, self.MOST, handles, settled, sizes, out, self.ROOM)
        if count <= 1:
            end = sizes[0]
            return Came([handles[0]], [view[:end]], [view[end : end + sizes[1]]], [settled[0]]) if count else NOTHING
        ends = accumulate(ffi.unpack(sizes, 2 * count), initial=0)
        parts = [view[at:end] for at, end in pairwise(ends)]
        return Came(ffi.unpack(handles, count), parts[::2], parts[1::2], ffi.unpack(settled, count))

    def news(self, collector: Any, link: Any, *, sends: bool) -> list[Handle]:
        found = self._results.memory[0]
        count = self._lib.news(collector, link, sends, self.MOST, found)
        handles: list[Handle] = ffi.unpack(found, count)
        return handles

    def states(self, handles: Sequence[Handle]) -> tuple[list[int], list[bool]]:
        if (count := len(handles)) < self.FEW:
            return super().states(handles)
        states, settled = self._new("uint64_t[]", count), self._new("bool[]", count)
        self._lib.states(_pointers(handles), count, states, settled)
        return ffi.unpack(states, count), ffi.unpack(settled, count)

    def settle(self, handles: Sequence[Handle]) -> None:
        if len(handles) < self.FEW:
            super().settle(handles)
        else:
            self._lib.settle(_pointers(handles), len(handles))

    def update(self, handles: Sequence[Handle], state: int) -> None:
        if len(handles) < self.FEW:
            super().update(handles, state)
        else:
            self._lib.update(_pointers(handles), len(handles), state)

    def transfer(self, link: Any, tags: Sequence[bytes], messages: Sequence[bytes], *, settled: bool) -> list[Handle]:
        lengths = list(map(len, messages))
        if len(lengths) < self.FEW or max(lengths) > self.JOINED:
            return super().transfer(link, tags, messages, settled=settled)
        made, tag_sizes = ffi.new("pn_delivery_t *[]", len(tags)), self._new("uint32_t[]", list(map(len, tags)))
        sizes, all_tags, all_messages = self._new("uint32_t[]", lengths), b"".join(tags), b"".join(messages)
        self._lib.transfer(link, len(tags), all_tags, tag_sizes, all_messages, sizes, settled, made)
        handles: list[Handle] = list(made)
        return handles


def _pointers(handles: Sequence[Handle]) -> Any:
    return ffi.new("pn_delivery_t *[]", handles)


def compiled() -> CompiledLoops | None:
    """The compiled loops; None if they were not compiled."""
    try:
        module: Any = import_module("router.amqp.proton._loops")
        sources = b"".join(Path(__file__).with_name(name).read_bytes() for name in ("loops.c", "loops_build.py"))
        is_ours = module.ffi.string(module.lib.source()).decode() == sha256(sources).hexdigest()
    except (ImportError, OSError, AttributeError):
        return None
    return CompiledLoops(module) if is_ours else None


INTERPRETED: Final = Loops()
LOOPS: Final = (None if os.environ.get("ONCEMESH_INTERPRETED") == "1" else compiled()) or INTERPRETED
