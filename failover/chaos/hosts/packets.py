"""Reads TCP packets of IPv4 as far as a wire has to understand them. Finds the connection of a packet, and makes the
reset that answers it."""

import struct
from typing import Final

TCP: Final = 6
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
_HEADER: Final = struct.Struct("!BBHHHBBH4s4s")
_TCP: Final = struct.Struct("!HHIIHHHH")


def connection_of(packet: bytes) -> bytes | None:
    """A name for the connection of the packet: the same in both directions, and different for each connection. None if
    the packet is not TCP."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != TCP:
        return None
    begin = (packet[0] & 15) * 4
    ends = packet[12:16] + packet[begin : begin + 2], packet[16:20] + packet[begin + 2 : begin + 4]
    return min(ends) + max(ends)


def reset_of(packet: bytes) -> bytes | None:
    """The reset that answers the packet (RFC 9293, 3.5.2). None if no reset may answer it."""
    if connection_of(packet) is None:
        return None
    begin = (packet[0] & 15) * 4
    source, target, sequence, acknowledged, offset_flags, *_ = _TCP.unpack_from(packet, begin)
    flags = offset_flags & 0x3F
    if flags & RST:
        return None
    if flags & ACK:
        fields = target, source, acknowledged, 0, 5 << 12 | RST
    else:
        length = len(packet) - begin - (offset_flags >> 12) * 4 + bool(flags & SYN) + bool(flags & FIN)
        fields = target, source, 0, (sequence + length) & 0xFFFFFFFF, 5 << 12 | RST | ACK
    ends = packet[16:20], packet[12:16]
    pseudo = struct.pack("!4s4sHH", *ends, TCP, _TCP.size)
    segment = _TCP.pack(*fields, 0, _checksum(pseudo + _TCP.pack(*fields, 0, 0, 0)), 0)
    header = 0x45, 0, _HEADER.size + _TCP.size, 0, 0, 64, TCP
    return _HEADER.pack(*header, _checksum(_HEADER.pack(*header, 0, *ends)), *ends) + segment


def _checksum(data: bytes) -> int:
    """The checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
