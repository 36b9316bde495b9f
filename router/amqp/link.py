"""One link of a connection: its attach, its credit, its deliveries.

Made by `Connection`, never by others. The owner's calls go straight to proton's engine; nothing leaves before the
connection is flushed, and an owner that calls outside of a callback wakes the connection (`Connection.wake`).
A link that has ended ignores every call: an outcome may well arrive from elsewhere after its link is gone. Detaching
settles nothing, however it comes about: what was unsettled stays so at the peer, for its next attach.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from router.amqp.codec import decode
from router.amqp.errors import PeerError
from router.amqp.library import (
    SCRATCH_SIZE,
    ffi,
    lib,
    read_condition,
    read_encoded,
    read_map,
    read_terminus,
    write_condition,
    write_lifetime,
    write_map,
)
from router.amqp.message import ENVELOPE
from router.amqp.notes import AttachFrame, Note
from router.amqp.performative import NULL
from router.amqp.tap import link_properties
from router.amqp.values import (
    EXPIRE_SESSION,
    MAX_TAG,
    MODIFIED,
    NO_STATE,
    RCV_FIRST,
    REJECTED,
    SND_MIXED,
    DeliveryState,
    ErrorCondition,
    Handle,
    OutcomeDetails,
    Terminus,
)

if TYPE_CHECKING:
    from router.amqp.connection import Connection

# One struct for all tags that we send: filling it anew is cheaper than allocating one a message.
_tag_memory = ffi.new("char[]", MAX_TAG)
_tag_view = memoryview(ffi.buffer(_tag_memory, MAX_TAG))
_tag_struct = ffi.new("pn_bytes_t *")
_tag_struct.start = _tag_memory
_tag = _tag_struct[0]


class Link:
    """See the attributes' comments. What is called the engine's is not for owners."""

    __slots__ = (
        "_closed",
        "_max_message",
        "_opened",
        "_postponed",
        "_properties",
        "answered",
        "closed_by_peer",
        "connection",
        "context",
        "continued",
        "credit",
        "detach_answered", "detached",
        "draining",
        "ended",
        "format",
        "former",
        "granted",
        "incomplete_unsettled",
        "is_sender",
        "name",
        "number",
        "omitted",
        "partial",
        "pointer",
        "quick",
        "remote_channel",
        "remote_incomplete_unsettled",
        "remote_max_message_size",
        "remote_properties",
        "remote_rcv_settle_mode",
        "remote_snd_settle_mode",
        "remote_source",
        "remote_target",
        "remote_unsettled",
        "resumed",
        "session",
        "tells",
        "told",
        "unsettled",
        "wire",
    )

    def __init__(self, connection: "Connection", pointer: Any, name: str, max_message: int) -> None:
        self.connection = connection
        self.pointer = pointer
        self.session = lib.pn_link_session(pointer)
        self.name = name
        self.is_sender: bool = lib.pn_link_is_sender(pointer)  # we send
        self.context: Any = None  # the owner's
        self.answered = False  # both ends have attached
        self.detached = False  # by either end, or its session is over
        self.detach_answered: Callable[[], None] | None = None  # what `detach` was given
        self.former: Link | None = None  # which the peer's attach, with a null map, continues: see `continue_former`
        self.ended = False  # detached, or its connection is over or closing: nothing is done for it any more
        self.credit = 0  # sending: what we may still send. Receiving: what the peer may still send
        self.draining = False  # sending: the peer wants its credit used or given back: send, then drained()
        self.max_message = max_message
        # What the peer said in its attach. A terminus that it left out is None.
        self.remote_source: Terminus | None = None
        self.remote_target: Terminus | None = None
        self.remote_snd_settle_mode = SND_MIXED
        self.remote_rcv_settle_mode = RCV_FIRST
        self.remote_max_message_size = 0
        self.remote_properties: Mapping[str, Any] = {}
        self.remote_unsettled: Mapping[bytes, DeliveryState] | None = None  # None: a null map, not an empty one
        self.remote_incomplete_unsettled = False
        self.omitted: tuple[bytes, ...] = ()  # keys of our map for which the attach, once written, had no room
        self.closed_by_peer = False  # it sent a closing detach
        self.tells: Callable[[], Mapping[str, int]] | None = None  # what flows that answer the peer say of the link
        self.told = NULL  # sending: the same of the peer's flows, as encoded
        self.continued: list[Any] = []  # the engine's: pointers of former links whose deliveries are this one's
        self.partial = bytearray()  # payload so far of a delivery that takes several frames
        self._opened = False  # our attach is under way
        self._postponed = False  # but waits for the detach of a link in its place
        self._closed = False  # our detach is a closing one
        self._properties: Mapping[str, Any] | None = None
        # The engine's, for the tap.
        self.unsettled: Mapping[bytes, int] | None = None  # our map, until it is written
        self.incomplete_unsettled = False
        self.number = 0  # that our attach was announced with
        self.wire = (b"", b"")  # channel and handle of our end
        self.granted = 0  # sending: all credit since the attach
        self.remote_channel = b""  # that the peer's attach came on
        self.resumed = False  # receiving: the delivery under way is a resumed one
        self.format = 0  # receiving: its message-format

    def __repr__(self) -> str:
        return f"<Link {self.name!r} {'to' if self.is_sender else 'from'} {self.connection.remote_container!r}>"

    @property
    def address(self) -> str | None:
        """Of the node at our end of a link that the peer attached: its source if we send, else its target."""
        terminus = self.remote_source if self.is_sender else self.remote_target
        return terminus.address if terminus else None

    @property
    def max_message(self) -> int:
        """Receiving: the largest message taken, in bytes; a larger one is rejected, and the link detached. 0: any."""
        return self._max_message

    @max_message.setter
    def max_message(self, size: int) -> None:
        self._max_message = size
        self.quick = min(size + 1, SCRATCH_SIZE) if size else SCRATCH_SIZE  # below it one look is enough

    @property
    def place(self) -> tuple[Any, bool, str]:
        """The engine's: no two attached links of a connection share it."""
        return self.session, self.is_sender, self.name

    # -- attach and detach

    def continue_former(self) -> None:
        """This attach is a re-attach (AMQP 1.0 2.6.4, 2.7.3): session and deliveries of `former`, which its peer had
        detached and not closed, and whose owner left it a `context`, live on, and so do their handles. They are this
        link's from now on. What has become of them meanwhile `remote_state` tells; news come once it is answered."""
        assert self.former is not None and not self.answered
        self.connection.continue_former(self, self.former)

    def answer(
        self,
        *,
        durable: int = 0,
        expiry_policy: str = EXPIRE_SESSION,
        timeout: int = 0,
        max_message_size: int | None = None,
        properties: Mapping[str, Any] | None = None,
        unsettled: Mapping[bytes, int] | None = None,
        incomplete_unsettled: bool = False,
    ) -> None:
        """Answer the peer's attach: with its own termini, less filters and capabilities, and its own settle modes; who
        names a distribution mode gets copies. Durability, expiry policy and timeout are granted for the terminus at our
        end. The size limit of a receiving link is the connection's unless given. A source of ours has `released` for
        its default outcome.

        `unsettled` is our map: tags with their states. What the peer's frames have no room for is left out from its
        end, see `omitted`; the map is then sent as incomplete.
        """
        if self.ended:
            return
        assert not self._opened
        source, target = lib.pn_link_source(self.pointer), lib.pn_link_target(self.pointer)
        self._echo_termini(source, target)
        write_lifetime(source if self.is_sender else target, durable, expiry_policy, timeout)
        if max_message_size is not None:
            self.max_message = max_message_size
        self.describe(properties, unsettled, incomplete_unsettled)
        self.open(self.remote_snd_settle_mode, self.remote_rcv_settle_mode)
        self.answered = True

    def describe(
        self, properties: Mapping[str, Any] | None, unsettled: Mapping[bytes, int] | None, incomplete_unsettled: bool
    ) -> None:
        """The engine's: what our attach is to say."""
        self._properties = properties
        self.unsettled = unsettled
        self.incomplete_unsettled = incomplete_unsettled

    def _echo_termini(self, source: Any, target: Any) -> None:
        lib.pn_terminus_copy(source, lib.pn_link_remote_source(self.pointer))
        lib.pn_terminus_copy(target, lib.pn_link_remote_target(self.pointer))
        if lib.pn_terminus_get_distribution_mode(source) != lib.PN_DIST_MODE_UNSPECIFIED:  # else it is not to be said
            lib.pn_terminus_set_distribution_mode(source, lib.PN_DIST_MODE_COPY)
        for data in (
            lib.pn_terminus_filter(source),
            lib.pn_terminus_capabilities(source),
            lib.pn_terminus_capabilities(target),
        ):
            lib.pn_data_clear(data)

    def open(self, snd_settle_mode: int, rcv_settle_mode: int) -> None:
        """The engine's: send our attach."""
        self.number = self.connection.tap.announce(self)
        write_map(link_properties(self.number, self._properties), lib.pn_link_properties(self.pointer))
        lib.pn_link_set_snd_settle_mode(self.pointer, snd_settle_mode)
        lib.pn_link_set_rcv_settle_mode(self.pointer, rcv_settle_mode)
        if not self.is_sender:
            lib.pn_link_set_max_message_size(self.pointer, self.max_message)
        self._opened = True
        self._postponed = self.connection.postpones(self)
        if not self._postponed:
            lib.pn_link_open(self.pointer)

    def attach_postponed(self) -> None:
        """The engine's: the attach may be written, and the detach that has followed it."""
        self._postponed = False
        lib.pn_link_open(self.pointer)
        if self.detached:
            self._detach(self._closed)

    def refuse(self, condition: str, description: str = "") -> None:
        """Answer the peer's attach without a terminus at our end, then detach with the error (AMQP 1.0 2.6.3)."""
        self.detach(condition, description)

    def detach(
        self, condition: str | None = None, description: str = "", closed: bool = True,
        *, answered: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """Detach; the link and its handles are over with this call, and no `on_detach` follows. `answered` is called
        when the peer has read it and says so, if ever (AMQP 1.0 2.6.4)."""
        if self.ended:
            return
        self.detach_answered = answered
        self.leave(condition, description, closed)

    def leave(self, condition: str | None, description: str, closed: bool) -> None:
        """The engine's: our detach, first or in answer. Proton sends the attach that is still owed before it."""
        self.end()
        self.detached = True
        if not self._opened:
            lib.pn_terminus_set_type(lib.pn_link_source(self.pointer), lib.PN_UNSPECIFIED)
            lib.pn_terminus_set_type(lib.pn_link_target(self.pointer), lib.PN_UNSPECIFIED)
            self.open(SND_MIXED, RCV_FIRST)  # what the peer asked for may be what is wrong
        write_condition(lib.pn_link_condition(self.pointer), condition, description)
        self._closed = closed
        if not self._postponed:
            self._detach(closed)

    def _detach(self, closed: bool) -> None:
        self.connection.leaving.add(self.place)
        (lib.pn_link_close if closed else lib.pn_link_detach)(self.pointer)

    def end(self) -> None:
        """The engine's: from here on nothing is done for this link."""
        self.ended = True
        self.credit = 0
        self.draining = False
        self.take_partial()

    def take_partial(self) -> bytes:
        """The engine's: the payload gathered so far, forgetting it."""
        message = bytes(self.partial)
        self.partial.clear()
        return message

    def expect(self, *, resumed: bool, message_format: int) -> None:
        """The engine's: the delivery that comes, or goes on, does not take the quick way."""
        self.resumed = self.resumed or resumed
        self.format = self.format or message_format
        self.quick = 0

    def expect_any(self) -> None:
        """The engine's: it is complete, or aborted."""
        self.resumed = False
        self.format = 0
        self.max_message = self._max_message

    def read_attach(self, frame: Note | None) -> None:
        """The engine's: take over what the peer's attach says."""
        if isinstance(frame, AttachFrame):
            self.remote_channel, self.remote_unsettled, self.remote_incomplete_unsettled = frame
        pointer = self.pointer
        self.remote_source = read_terminus(lib.pn_link_remote_source(pointer))
        self.remote_target = read_terminus(lib.pn_link_remote_target(pointer))
        self.remote_snd_settle_mode = lib.pn_link_remote_snd_settle_mode(pointer)
        self.remote_rcv_settle_mode = lib.pn_link_remote_rcv_settle_mode(pointer)
        self.remote_max_message_size = lib.pn_link_remote_max_message_size(pointer)
        self.remote_properties = read_map(lib.pn_link_remote_properties(pointer))

    def remote_condition(self) -> ErrorCondition | None:
        """The engine's: the error of the peer's detach."""
        return read_condition(lib.pn_link_remote_condition(self.pointer))

    # -- deliveries

    def send(
        self,
        tag: bytes,
        message: bytes,
        settled: bool = False,
        *,
        resume: bool = False,
        state: int = NO_STATE,
        aborted: bool = False,
    ) -> Handle:
        """Send a whole message; needs credit. A settled one has no handle (None). One that resumes a delivery may
        carry its state, may be empty, and may abort it, which settles it."""
        if self.ended:
            return None
        assert self.is_sender and self.credit > 0
        size = len(tag)
        _tag_view[:size] = tag
        _tag_struct.size = size
        pointer = self.pointer
        delivery = lib.pn_delivery(pointer, _tag)
        if message >= ENVELOPE:
            self.connection.tap.envelope(self, tag, message)
        if resume:
            settled = settled or aborted
            self.connection.tap.resume(self, tag, aborted)
            if state:
                lib.pn_delivery_update(delivery, state)
        lib.pn_link_send(pointer, message, len(message))
        self.credit -= 1
        if settled:
            lib.pn_delivery_settle(delivery)  # advances the link too
            return None
        lib.pn_link_advance(pointer)
        return delivery

    def settle(self, handle: Handle) -> None:
        """Settle, in the state last given. Also frees a delivery that the peer has settled; sends nothing then."""
        if not self.ended:
            lib.pn_delivery_settle(handle)
            self.connection.settling.add(handle)

    def settle_many(self, handles: Collection[Handle]) -> None:
        if not self.ended:
            settle = lib.pn_delivery_settle
            for handle in handles:
                settle(handle)
            self.connection.settling.update(handles)

    def update(self, handle: Handle, state: int, settle: bool = False) -> None:
        """State a delivery state without details, unsettled unless told otherwise."""
        if not self.ended:
            lib.pn_delivery_update(handle, state)
            if settle:
                self.settle(handle)

    def update_many(self, handles: Collection[Handle], state: int, settle: bool = False) -> None:
        if not self.ended:
            update = lib.pn_delivery_update
            for handle in handles:
                update(handle, state)
            if settle:
                self.settle_many(handles)

    def reject(
        self,
        handle: Handle,
        condition: str,
        description: str = "",
        settle: bool = False,
        *,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        if not self.ended:
            error = lib.pn_disposition_condition(lib.pn_delivery_local(handle))
            write_condition(error, condition, description, info)
            self.update(handle, REJECTED, settle)

    def modify(
        self,
        handle: Handle,
        failed: bool,
        undeliverable: bool,
        settle: bool = False,
        *,
        annotations: Mapping[str, Any] | None = None,
    ) -> None:
        if not self.ended:
            disposition = lib.pn_delivery_local(handle)
            write_map(annotations, lib.pn_disposition_annotations(disposition))
            lib.pn_disposition_set_failed(disposition, failed)
            lib.pn_disposition_set_undeliverable(disposition, undeliverable)
            self.update(handle, MODIFIED, settle)

    def remote_outcome(self, handle: Handle) -> OutcomeDetails:
        """The details of an outcome (rejected, modified); for use inside `on_dispositions`."""
        disposition = lib.pn_delivery_remote(handle)
        state = lib.pn_delivery_remote_state(handle)
        error = read_condition(lib.pn_disposition_condition(disposition)) if state == REJECTED else None
        return OutcomeDetails(
            state=state,
            condition=error.name if error else None,
            description=error.description if error else "",
            info=error.info if error else {},
            failed=lib.pn_disposition_is_failed(disposition),
            undeliverable=lib.pn_disposition_is_undeliverable(disposition),
            annotations=read_encoded(lib.pn_disposition_annotations(disposition)) if state == MODIFIED else b"",
        )

    @staticmethod
    def remote_state(handle: Handle) -> tuple[int, bool]:
        """The peer's latest word on a delivery, and whether it has settled it."""
        return lib.pn_delivery_remote_state(handle), lib.pn_delivery_settled(handle)

    @property
    def unsent(self) -> int:
        """How many of the last deliveries sent were not written: the peer's session has no room for them."""
        return int(lib.pn_link_queued(self.pointer))

    # -- flow

    @property
    def remote_state_properties(self) -> Mapping[str, Any]:
        """Sending: what the peer's flows have said of the link; empty if nothing, or nothing that AMQP allows."""
        try:
            told = decode(self.told)[0]
        except PeerError:
            return {}
        return told if isinstance(told, dict) else {}

    def echo(self) -> None:
        """Ask the peer for its side of the link's flow state: `on_echo` tells that it has answered, if ever."""
        if not self.ended:
            assert self.answered
            self.connection.echoes.ask(self)

    def answer_echo(self) -> None:
        """Answer the peer, which has asked for ours (see `Connection`, asked)."""
        if not self.ended:
            self.connection.echoes.answer(self)

    def flow(self, credit: int) -> None:
        """Receiving: let the peer send so many more."""
        if not self.ended:
            lib.pn_link_flow(self.pointer, credit)
            self.credit += credit

    def drain(self, credit: int) -> None:
        """Receiving: let the peer send so many more, and give back at once what it cannot use."""
        if not self.ended:
            lib.pn_link_drain(self.pointer, credit)
            self.credit += credit

    def drained(self) -> None:
        """Sending: give back the credit that is left, as a draining peer asked."""
        if not self.ended and self.draining:
            lib.pn_link_drained(self.pointer)
            self.credit = 0
            self.draining = False
