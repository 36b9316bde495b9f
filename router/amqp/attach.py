"""What an attach of ours may ask for and say: the options of `Connection.sender` and `Connection.receiver`."""

from collections.abc import Mapping
from typing import Any, TypedDict

from attrs import frozen

from router.amqp.handler import EXPIRE_SESSION, RCV_FIRST, SND_MIXED


class AttachOptions(TypedDict, total=False):
    """See `Attach`, which has the defaults."""

    snd_settle_mode: int
    rcv_settle_mode: int
    durable: int
    expiry_policy: str
    timeout: int
    properties: Mapping[str, Any] | None
    unsettled: Mapping[bytes, int] | None
    incomplete_unsettled: bool


@frozen
class Attach:
    """The lifetime is asked for both termini. For our unsettled map see `Link.answer`; before the peer's open
    (`on_open`) an attach has room for few entries."""

    snd_settle_mode: int = SND_MIXED
    rcv_settle_mode: int = RCV_FIRST
    durable: int = 0
    expiry_policy: str = EXPIRE_SESSION
    timeout: int = 0  # seconds
    properties: Mapping[str, Any] | None = None
    unsettled: Mapping[bytes, int] | None = None
    incomplete_unsettled: bool = False
