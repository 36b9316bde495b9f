"""The numbers of MQTT: kinds of packets, reason codes (MQTT 5 2.4), and the error for a peer that breaks MQTT.

This module imports only the base of that error. It also maps a reason code to the return code that a client of 3.1.1
gets. It does not decide what follows from a reason code.
"""

from enum import IntEnum
from typing import Final

from router.amqp.format.errors import PeerFaultError

V3, V5 = 4, 5
"""The protocol levels of MQTT 3.1.1 and of MQTT 5."""


class PacketKind(IntEnum):
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Reason(IntEnum):
    """Reason codes. A code below 0x80 means success."""

    SUCCESS = 0x00
    WITH_WILL = 0x04
    NO_SUBSCRIPTION = 0x11
    UNSPECIFIED = 0x80
    MALFORMED = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION = 0x83
    UNSUPPORTED_VERSION = 0x84
    BAD_CLIENT_ID = 0x85
    BAD_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    UNAVAILABLE = 0x88
    BUSY = 0x89
    SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION = 0x8C
    KEEP_ALIVE = 0x8D
    TAKEN_OVER = 0x8E
    BAD_FILTER = 0x8F
    BAD_TOPIC = 0x90
    ID_NOT_FOUND = 0x92
    TOO_MANY = 0x93
    BAD_ALIAS = 0x94
    TOO_LARGE = 0x95
    QUOTA = 0x97
    ADMINISTRATIVE = 0x98
    NO_RETAIN = 0x9A
    NO_SHARED = 0x9E


REFUSED: Final = 0x80
"""The lowest reason code that is a refusal. In a SUBACK of MQTT 3.1.1, this value is the only refusal."""

_RETURN_CODES: Final = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_VERSION: 1,
    Reason.BAD_CLIENT_ID: 2,
    Reason.BAD_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BAD_AUTHENTICATION: 5,
}
_UNAVAILABLE: Final = 3


def return_code(reason: Reason) -> int:
    """The return code of a CONNACK of MQTT 3.1.1 (3.2.2.3)."""
    return _RETURN_CODES.get(reason, _UNAVAILABLE)


class MqttError(PeerFaultError):
    """The peer broke MQTT, or has exceeded one of its limits. The router ends the peer's connection, and nothing
    else."""

    def __init__(self, reason: Reason, description: str, limit: str = "") -> None:
        """`limit` names the limit of the topology that the peer exceeds; empty if none."""
        super().__init__(f"{reason.name.lower().replace('_', ' ')}: {description}")
        self.reason = reason
        self.description = description
        self.limit = limit
