"""The parts of a topology file: the keys of each part, and the parser of each value.

router/mesh/topology.py checks the rules between parts.
"""

import re
from typing import Any, TypeAlias

import attrs

from linkstate.plan.names import MOST_COST, NAME
from router.mesh.config import (
    AMQP_WS,
    ANY_ORIGIN,
    COUNTED,
    FILES,
    HTTP,
    IN_CLEAR,
    LISTENERS,
    MQTT_WS,
    SYNCS,
    TLS_ONLY,
    WHEN_FULL,
    AddressRule,
    Limits,
    LogSettings,
    NamedSet,
    Queues,
    RouterConfig,
    Security,
    Timing,
    listener_name,
)
from router.mesh.marked import MarkedList, MarkedText, Value
from router.mesh.quantities import Address, parse_duration
from router.mesh.reading import KEY, converter, expected, joined_with_or, shown, size, text, whole
from topic.identity import INSIDE
from topic.queues.moving.policy import POLICIES
from topic.queues.operations import MOST_NAME
from topic.settings import DYNAMIC, KINDS, MOST_FACTOR

MOST_MESSAGE = 1 << 30
"""The largest `limits.max_message`."""
LEAST_LOG = 64 << 20
"""The smallest `log.size`: two segments."""
LEAST_LINKS = 2
"""The smallest `limits.links`. Our clients need one link for a topic, and one for `$routers`."""
MOST_SETS = 256
"""The largest `queues.sets`."""
SET_LIMIT = (1 << 20, 1 << 40)
"""The smallest and the largest `queues.limit`."""
LEAST_HOLD_S = 1.0
"""The smallest `queues.named[].hold`."""
REPLICAS = (1, 2, 3, 5, 7)
"""The possible numbers of replicas of a set. Four would be no better than three: a majority of four is three, so both
bear the loss of one."""
MOST_WINDOW = 1 << 40
"""The largest `limits.window_bytes`. Also the largest of the limits for the bytes of several publishers."""


Places: TypeAlias = tuple[Address, ...]


@attrs.frozen
class RouterPart:
    """The keys of a router whose values are addresses: each kind of listener, and `advertise`."""

    amqp: Places
    inter: Places = ()
    advertise: Address | None = None
    http: Places = ()
    mqtt: Places = ()
    amqp_ws: Places = attrs.field(default=(), metadata={KEY: AMQP_WS})
    mqtt_ws: Places = attrs.field(default=(), metadata={KEY: MQTT_WS})

    def config(self, name: str) -> RouterConfig:
        places: dict[str, Places] = {kind: getattr(self, kind.replace("-", "_")) for kind in LISTENERS}
        found = {listener_name(kind, at): one for kind, some in places.items() for at, one in enumerate(some)}
        own = {field.name for field in attrs.fields(RouterConfig)}
        more = {listener: found.pop(listener) for listener in list(found) if listener not in own}
        return RouterConfig(name, advertise=self.advertise, more=more, **found)


@attrs.frozen
class LinkPart:
    between: tuple[str, str]
    cost: int = 1
    address: Address | None = None


def _dialled(text: str) -> Address:
    address = Address.parse(text)
    if address.is_anywhere or address.port == 0:
        raise ValueError(f'"{text}" is no reachable address, expected a host and a port that others can connect to')
    return address


def _prefix(text: str) -> str:
    if not text:
        return text
    if not text.isprintable() or " " in text:
        raise ValueError(f'"{text}" is not a prefix, expected the start of an address such as topic/')
    for start, of in ((DYNAMIC, "dynamic nodes"), (INSIDE, "replica sets")):
        if text.startswith(start) or start.startswith(text):
            raise ValueError(f'"{text}" begins addresses of {of}, which are {start}…: expected another start')
    return text


def _set_prefix(text: str) -> str:
    if not text:
        raise ValueError('"" has all queues, expected the start of an address such as queue/eu/')
    if len(text.encode()) >= MOST_NAME:
        raise ValueError(f'"{text}" is longer than any name of a queue, expected fewer than {MOST_NAME} bytes')
    return _prefix(text)


def _kind(text: str) -> str:
    if text not in KINDS:
        raise ValueError(f'unknown kind "{text}", expected {joined_with_or(KINDS)}')
    return text


def _pair(value: Value, _: Any) -> tuple[str, str]:
    ends = [str(end) for end in value if isinstance(end, MarkedText)] if isinstance(value, MarkedList) else []
    if not isinstance(value, MarkedList) or len(value) != 2 or len(ends) != 2:
        raise ValueError(f"{shown(value)}, expected the names of two routers such as [a, b]")
    return ends[0], ends[1]


def _replicas(text: str) -> int:
    if text not in map(str, REPLICAS):
        raise ValueError(f'"{text}", expected {joined_with_or(map(str, REPLICAS))}')
    return int(text)


def _sync(text: str) -> str:
    if text not in SYNCS:
        raise ValueError(f'"{text}", {expected(text, SYNCS)}')
    return text


def _set(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(f'"{text}" cannot name a set, expected letters, digits, - and _')
    if re.fullmatch("q[0-9]+", text):
        raise ValueError(f'"{text}" may be the name of a hashed set (q0, q1, …), expected another name')
    return text


def _voters(value: Value, _: Any) -> tuple[str, ...]:
    names = _different(value, "[a, b, c]")
    if len(names) not in REPLICAS:
        raise ValueError(f"{len(names)} routers, expected {joined_with_or(map(str, REPLICAS))}")
    return names


def _copies(value: Value, _: Any) -> tuple[str, ...]:
    return _different(value, "[d]")


def _different(value: Value, such: str) -> tuple[str, ...]:
    """Parses a list of the names of different routers."""
    names = [str(name) for name in value if isinstance(name, MarkedText)] if isinstance(value, MarkedList) else []
    if not isinstance(value, MarkedList) or len(names) != len(value):
        raise ValueError(f"{shown(value)}, expected the names of routers such as {such}")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f'"{twice}" is named twice, expected different routers')
    return tuple(names)


def _moves(text: str) -> str:
    if text not in POLICIES:
        raise ValueError(f'"{text}", {expected(text, POLICIES)}')
    return text


def _hold(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < LEAST_HOLD_S:
        raise ValueError(f'"{text}", expected {LEAST_HOLD_S:g}s or more')
    return seconds


def _full(text: str) -> str:
    if text not in WHEN_FULL:
        raise ValueError(f'"{text}", {expected(text, WHEN_FULL)}')
    return text


def _file(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError(f'"{text}", expected the name of a file')
    return text


def _plain(text: str) -> str:
    if text not in (TLS_ONLY, IN_CLEAR):
        raise ValueError(f'"{text}", {expected(text, (TLS_ONLY, IN_CLEAR))}')
    return text


def _open(value: Value, _: Any) -> tuple[str, ...]:
    names = [str(name) for name in value if isinstance(name, MarkedText)] if isinstance(value, MarkedList) else []
    if not isinstance(value, MarkedList) or len(names) != len(value) or not set(LISTENERS).issuperset(names):
        raise ValueError(f"{shown(value)}, expected listeners that are open to everybody, of {', '.join(LISTENERS)}")
    return tuple(names)


def _origins(value: Value, _: Any) -> tuple[str, ...]:
    such = "origins of web pages such as [https://shop.example.org], or ['*'] for all"
    names = [str(name) for name in value if isinstance(name, MarkedText)] if isinstance(value, MarkedList) else []
    if not isinstance(value, MarkedList) or len(names) != len(value) or not names:
        raise ValueError(f"{shown(value)}, expected {such}")
    for name in names:
        if name != ANY_ORIGIN and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", name.lower()):
            raise ValueError(f'"{name}", expected {such}')
    return tuple(name.lower() for name in names)


def _places(value: Value, _: Any) -> Places:
    """Parses one address, or a list of addresses."""
    if not isinstance(value, MarkedList):
        return (text(Address.parse)(value, Address),)
    if not value:
        raise ValueError("an empty list, expected host:port, or a list of these")
    return tuple(text(Address.parse)(one, Address) for one in value)


def _place(value: Value, _: Any) -> Places:
    return (text(Address.parse)(value, Address),)


CONVERTER = converter(
    {
        RouterPart: {
            **dict.fromkeys(("amqp", "inter", "mqtt", "amqp_ws", "mqtt_ws"), _places),
            HTTP: _place,
            "advertise": text(_dialled),
        },
        LinkPart: {"between": _pair, "cost": text(whole(1, MOST_COST)), "address": text(_dialled)},
        AddressRule: {
            "prefix": text(_prefix),
            "kind": text(_kind),
            "retry_after": text(parse_duration),
            "retry_factor": text(whole(1, MOST_FACTOR)),
            "retry_most": text(parse_duration),
        },
        Timing: {field.name: text(parse_duration) for field in attrs.fields(Timing)},
        Limits: {
            "window": text(whole(1, 1_000_000)),
            "window_bytes": text(size(1 << 10, MOST_WINDOW)),
            "max_message": text(size(1 << 10, MOST_MESSAGE)),
            **{name: text(size(1 << 20, MOST_WINDOW)) for name in ("connection_bytes", "user_bytes", "router_bytes")},
            "max_frame": text(size(512, 1 << 24)),
            "redeliveries": text(whole(0, 1000)),
            **{name: text(whole(1, 1_000_000)) for name in COUNTED},
            "links": text(whole(LEAST_LINKS, 1_000_000)),
            "opening": text(parse_duration),
        },
        Security: {
            **{name: text(_file) for name in FILES},
            "plain": text(_plain),
            "open": _open,
            "origins": _origins,
        },
        Queues: {
            "sets": text(whole(1, MOST_SETS)),
            "replicas": text(_replicas),
            "sync": text(_sync),
            "limit": text(size(*SET_LIMIT)),
        },
        NamedSet: {
            "name": text(_set),
            "prefix": text(_set_prefix),
            "voters": _voters,
            "copies": _copies,
            "prefer": text(str),
            "moves": text(_moves),
            "hold": text(_hold),
        },
        LogSettings: {"full": text(_full), "keep": text(parse_duration), "size": text(size(LEAST_LOG, 1 << 50))},
    }
)
