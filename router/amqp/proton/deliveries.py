"""The deliveries of one link, their states, and the link's credit.

The owner's calls go straight to proton's engine. Their output leaves when the connection is flushed; an owner that
calls outside of a callback wakes the connection (`Connection.wake`). A link that has ended ignores every call, because
an outcome may arrive from another router after the link has ended.

`link` has the attach and the detach of a link.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from router.amqp.format.codec import Described, Symbol
from router.amqp.format.message import ENVELOPE, annotations_to_add
from router.amqp.format.states import outcome_of
from router.amqp.format.values import (
    ACCEPTED,
    DECLARED,
    ERROR,
    MODIFIED,
    NO_STATE,
    REJECTED,
    TRANSACTIONAL,
    Handle,
    HeldBytes,
    OutcomeDetails,
)
from router.amqp.proton.library import (
    MEMORY,
    MOST_TOLD,
    SCRATCH_SIZE,
    as_tag,
    ffi,
    lib,
    read_condition,
    read_data,
    read_encoded,
    write_condition,
    write_list,
    write_map,
)
from router.amqp.proton.loops import LOOPS

MOST_CREDIT: Final = 2**31 - 1
"""The highest credit of a link in proton, which takes credit as a signed number."""


class DeliveryHost(Protocol):
    """The connection, as deliveries use it."""

    settling: set[Handle]
    account: HeldBytes

    def resumes(self, link: "LinkDeliveries", tag: bytes, aborted: bool) -> None:
        """Mark the next delivery with this tag as resumed."""

    def has_envelope(self, link: "LinkDeliveries", tag: bytes, message: bytes) -> None:
        """The message of the next delivery with this tag is in an envelope."""


class LinkDeliveries:
    """The deliveries of one link. The comments describe the attributes. "Engine only" marks members that the owner of
    the connection does not use.
    """

    __slots__ = (
        "_debt",
        "_kept",
        "_max_message",
        "available",
        "connection",
        "credit",
        "draining",
        "ended",
        "format",
        "is_sender",
        "is_vast",
        "overdraft",
        "partial",
        "pointer",
        "quick",
        "resumed",
        "took_back",
    )

    def __init__(self, connection: DeliveryHost, pointer: Any, max_message: int) -> None:
        self.connection = connection
        self.pointer = pointer
        self.is_sender: bool = lib.pn_link_is_sender(pointer)  # True if our end sends
        # True once the link is detached, or the connection is closing or closed. All calls are then ignored.
        self.ended = False
        # The number of messages that the sending end, ours or the peer's, may still send.
        self.credit = 0
        # If we receive: the number of transfers without credit that are accepted. The owner sets it.
        self.overdraft = 0
        # If we send: the peer wants its credit used or given back. The owner sends messages, then calls `drained`.
        self.draining = False
        # Engine only: the peer's last flow gave credit of 2^31 or more.
        self.is_vast = False
        self.max_message = max_message
        # The attributes from here on belong to the engine.
        # `available`, if we send: the number of waiting messages that our flows name; None: our flows name no number.
        self.available: int | None = None
        self.took_back = False  # if we receive: True once we have taken back some credit
        self._kept = 0  # the bytes that proton keeps for this link after its end
        # Credit that we still have to take back from the peer, as a number below 0.
        self._debt = 0
        # The payload so far of a delivery that arrives in several frames.
        self.partial = bytearray()
        self.resumed = False  # if we receive: True while a resumed delivery arrives
        self.format = 0  # if we receive: the message-format of the delivery that arrives

    @property
    def max_message(self) -> int:
        """The highest number of bytes of a message that we receive; 0: no limit. A larger one is rejected, and the link
        detached."""
        return self._max_message

    @max_message.setter
    def max_message(self, size: int) -> None:
        self._max_message = size
        # Messages with fewer bytes than this take the fast path.
        self.quick = min(size + 1, SCRATCH_SIZE) if size else SCRATCH_SIZE

    def gather_partial(self) -> None:
        """Engine only: take the parts of the current message that have arrived out of proton."""
        before, scratch = len(self.partial), MEMORY.scratch
        while (size := lib.pn_link_recv(self.pointer, scratch, SCRATCH_SIZE)) > 0:
            self.partial += ffi.buffer(scratch, size)
        self.connection.account.add(len(self.partial) - before)

    def take_partial(self) -> bytes:
        """Engine only: return the payload gathered so far, and forget it."""
        message = bytes(self.partial)
        self.drop_partial()
        return message

    def drop_partial(self) -> None:
        """Engine only: forget the payload gathered so far."""
        if self.partial:
            self.connection.account.add(-len(self.partial))
            self.partial.clear()

    @property
    def is_amid_delivery(self) -> bool:
        """Engine only, when no input is left in proton: whether a delivery has begun and is not complete."""
        current = lib.pn_link_current(self.pointer)
        return bool(current) and bool(lib.pn_delivery_partial(current))

    def expect(self, *, resumed: bool, message_format: int) -> None:
        """Engine only: keep the next or current delivery off the fast path, because it is resumed or has another
        message-format than 0."""
        self.resumed = self.resumed or resumed
        self.format = self.format or message_format
        self.quick = 0

    def expect_any(self) -> None:
        """Engine only: allow the fast path again, because the delivery is complete or aborted."""
        self.resumed = False
        self.format = 0
        self.max_message = self._max_message

    def keep(self, size: int) -> None:
        """Count `size` bytes of unsettled messages that proton keeps for an ended link, until the link is freed."""
        self._kept += size
        self.connection.account.add(size)

    def free(self) -> None:
        """Engine only: count no more bytes for this link, because proton has freed them, or another link counts
        them."""
        self.connection.account.add(-self._kept)
        self._kept = 0

    # -- The methods from here on are about deliveries.

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
        """Send a whole message; needs credit. Returns the handle; None for a settled message. With `resume`, the
        transfer resumes a delivery: it may carry the delivery's state, and the message may be empty. With `aborted`, it
        aborts and settles the delivery."""
        if self.ended:
            return None
        assert self.is_sender and self.credit > 0
        pointer = self.pointer
        delivery = lib.pn_delivery(pointer, as_tag(tag))
        if message >= ENVELOPE:
            self.connection.has_envelope(self, tag, message)
        if resume:
            settled = settled or aborted
            self.connection.resumes(self, tag, aborted)
            if state:
                lib.pn_delivery_update(delivery, state)
        lib.pn_link_send(pointer, message, len(message))
        self.credit -= 1
        if settled:
            # If a delivery is settled, proton makes the next delivery of the link the current one, too.
            lib.pn_delivery_settle(delivery)
            return None
        lib.pn_link_advance(pointer)
        return delivery

    def send_many(self, tags: Sequence[bytes], messages: Sequence[bytes], *, settled: bool) -> list[Handle]:
        """Send whole messages, at least one; needs credit for all. Returns their handles; none if they are settled."""
        if self.ended:
            return []
        assert self.is_sender and self.credit >= len(tags) == len(messages)
        if max(messages) >= ENVELOPE:
            for tag, message in zip(tags, messages, strict=True):
                if message >= ENVELOPE:
                    self.connection.has_envelope(self, tag, message)
        self.credit -= len(tags)
        handles = LOOPS.transfer(self.pointer, tags, messages, settled=settled)
        return [] if settled else handles

    def settle(self, handle: Handle) -> None:
        """Settle a delivery, in its last state. If the peer has settled it before, this sends nothing and frees the
        handle."""
        if not self.ended:
            lib.pn_delivery_settle(handle)
            self.connection.settling.add(handle)

    def settle_many(self, handles: Collection[Handle]) -> None:
        if not self.ended:
            LOOPS.settle(list(handles))
            self.connection.settling.update(handles)

    def update(self, handle: Handle, state: int, settle: bool = False) -> None:
        """Send a delivery state without details, and settle if `settle`."""
        if not self.ended:
            lib.pn_delivery_update(handle, state)
            if settle:
                self.settle(handle)

    def update_many(self, handles: Collection[Handle], state: int, settle: bool = False) -> None:
        if not self.ended:
            LOOPS.update(list(handles), state)
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

    def declare(self, handle: Handle, transaction: bytes) -> None:
        """Answer the declaration of a transaction with the transaction's name, settled (AMQP 1.0 4.5.7)."""
        self._tell(handle, DECLARED, [transaction])

    def take_provisionally(self, handle: Handle, transaction: bytes) -> None:
        """Accept a delivery within a transaction, settled (AMQP 1.0 4.4.1)."""
        self._tell(handle, TRANSACTIONAL, [transaction, Described(ACCEPTED, [])])

    def reject_provisionally(
        self, handle: Handle, transaction: bytes, condition: str, description: str, info: Mapping[str, Any]
    ) -> None:
        """Reject a delivery within a transaction, settled."""
        error = [Symbol(condition), description[:MOST_TOLD], {Symbol(key): value for key, value in info.items()}]
        self._tell(handle, TRANSACTIONAL, [transaction, Described(REJECTED, [Described(ERROR, error)])])

    def _tell(self, handle: Handle, state: int, fields: Sequence[Any]) -> None:
        if not self.ended:
            write_list(fields, lib.pn_disposition_data(lib.pn_delivery_local(handle)))
            self.update(handle, state, settle=True)

    @staticmethod
    def remote_transaction(handle: Handle) -> tuple[bytes, OutcomeDetails]:
        """The peer's last state for a delivery, if it is transactional: the name of the transaction, and the outcome in
        the state. Both are empty if the state is malformed. For use inside `on_dispositions` and `on_posted`."""
        told = read_data(lib.pn_disposition_data(lib.pn_delivery_remote(handle)))
        fields = [*told, None, None] if isinstance(told, list) else [None, None]
        return fields[0] if isinstance(fields[0], bytes) else b"", outcome_of(fields[1])

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
            annotations=annotations_to_add(read_encoded(lib.pn_disposition_annotations(disposition)))
            if state == MODIFIED
            else b"",
        )

    @staticmethod
    def local_state(handle: Handle) -> int:
        """The last state that we sent for a delivery; 0 if none."""
        return int(lib.pn_delivery_local_state(handle))

    @staticmethod
    def remote_state(handle: Handle) -> tuple[int, bool]:
        """The last state that the peer sent for a delivery, and whether the peer has settled it."""
        return lib.pn_delivery_remote_state(handle), lib.pn_delivery_settled(handle)

    @property
    def unwritten(self) -> int:
        """Bytes of sent messages on the link's session that are not written yet; 0 if none of them belongs to this
        link. Messages of a link that has lost its credit stay unwritten until it has credit again."""
        if self.ended or not lib.pn_link_queued(self.pointer):
            return 0
        return int(lib.pn_session_outgoing_bytes(lib.pn_link_session(self.pointer)))

    @property
    def unsent(self) -> int:
        """The number of sent deliveries that are not written, because the peer's session has no room for them. They are
        the last ones sent."""
        return int(lib.pn_link_queued(self.pointer))

    @staticmethod
    def is_unsent(handle: Handle) -> bool:
        """Whether a part of a sent delivery's message is not written yet. For an empty message this cannot be known."""
        return bool(lib.pn_delivery_pending(handle))

    # -- The methods from here on are about credit.

    def read_credit(self) -> int:
        """Engine only: the credit in proton. A number below 0 is a vast credit if the peer gave one. Otherwise the
        peer took credit back, and it counts as 0."""
        credit = int(lib.pn_link_credit(self.pointer))
        if credit < 0:
            return credit % 2**32 if self.is_vast else 0
        return credit

    def flow(self, credit: int) -> None:
        """Let the peer send `credit` more messages on a link on which we receive, or fewer if `credit` is below 0.
        After credit is taken back, the peer's flows do not count as answers to echoes (`router.amqp.frames.echo`). A
        part of the credit cannot be taken back at once: proton would write a negative credit as 2^32 - 1 if messages
        are still under way in part. This debt is taken back later.
        """
        if not self.ended:
            self.took_back = self.took_back or credit < 0
            due = self._debt + credit
            lacks = lib.pn_link_queued(self.pointer) - lib.pn_link_credit(self.pointer)
            # `MOST_CREDIT` limits the credit, because a peer may claim to have used more credit than it had.
            given = max(due, min(lacks, MOST_CREDIT))
            self._debt = due - given
            lib.pn_link_flow(self.pointer, given)
            self.credit += given

    @property
    def balance(self) -> int:
        """Engine only: the credit that is left to the peer on a link on which we receive. It is below 0 if the peer has
        transferred without credit.
        """
        return int(lib.pn_link_credit(self.pointer)) + self._debt

    def drain(self, credit: int) -> None:
        """Let the peer send `credit` more messages on a link on which we receive, and have it give back at once the
        credit that it cannot use.
        """
        if not self.ended:
            lib.pn_link_drain(self.pointer, credit)
            self.credit += credit
