"""One AMQP link of a connection. (Signatures; the engine follows.)"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from router.amqp.handler import EXPIRE_SESSION, RCV_FIRST, SND_MIXED, Handle, Outcome, Terminus

if TYPE_CHECKING:
    from router.amqp.connection import Connection


class Link:
    connection: "Connection"
    name: str
    is_sender: bool  # we send
    context: Any = None  # the owner's
    answered: bool = False  # both ends attached
    ended: bool = False  # detached by either side, or its connection is over: every call below is then ignored
    credit: int = 0  # sending: deliveries we may send. receiving: deliveries the peer may still send
    draining: bool = False  # sending: the peer wants its credit used or given back: send what there is, then drained()
    # what the peer said in its attach
    remote_source: Terminus | None
    remote_target: Terminus | None
    remote_snd_settle_mode: int = SND_MIXED
    remote_rcv_settle_mode: int = RCV_FIRST
    remote_max_message_size: int = 0
    remote_properties: Mapping[str, Any]

    @property
    def address(self) -> str | None:
        """Of the terminus at our end of a remote attach: its source if we send, its target if we receive."""
        raise NotImplementedError

    def answer(
        self,
        *,
        durable: int = 0,
        expiry_policy: str = EXPIRE_SESSION,
        timeout: int = 0,
        max_message_size: int = 0,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Answer the peer's attach: its source and target without filters and capabilities, its settle modes; durable,
        expiry policy and timeout are those of the terminus at our end."""
        raise NotImplementedError

    def refuse(self, condition: str, description: str = "") -> None:
        """Answer the peer's attach with no terminus at our end, then detach (closed) with the error."""
        raise NotImplementedError

    def detach(self, condition: str | None = None, description: str = "", closed: bool = True) -> None:
        """Detach; link and handles are invalid from here on. No unsettled delivery is settled by this."""
        raise NotImplementedError

    def send(self, tag: bytes, message: bytes, settled: bool = False) -> Handle:
        """Needs credit. A settled one has no handle (None)."""
        raise NotImplementedError

    def settle(self, handle: Handle) -> None:
        raise NotImplementedError

    def settle_many(self, handles: Iterable[Handle]) -> None:
        raise NotImplementedError

    def update(self, handle: Handle, state: int, settle: bool = False) -> None:
        raise NotImplementedError

    def update_many(self, handles: Iterable[Handle], state: int, settle: bool = False) -> None:
        raise NotImplementedError

    def reject(self, handle: Handle, condition: str, description: str = "", settle: bool = False) -> None:
        raise NotImplementedError

    def modify(self, handle: Handle, failed: bool, undeliverable: bool, settle: bool = False) -> None:
        raise NotImplementedError

    def remote_outcome(self, handle: Handle) -> Outcome:
        """The detail of rejected and modified; to be asked inside on_dispositions."""
        raise NotImplementedError

    def flow(self, credit: int) -> None:
        """Receiving: let the peer send so many more."""
        raise NotImplementedError

    def drained(self) -> None:
        """Sending: give back the credit that is left."""
        raise NotImplementedError
