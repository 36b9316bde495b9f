"""Makes a topology of the configurations of routers, and lists what has no counterpart in a mesh of oncemesh."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

from router.imported.sections import ConfigSection, Item
from router.mesh.config import AMQP, AMQP_WS, INTER
from router.mesh.quantities import Address
from router.mesh.topology import names_a_router
from topic.settings import BALANCED, CLOSEST, OF_THE_MESH, TOPIC

KINDS: Final = {"multicast": TOPIC, "balanced": BALANCED, "closest": CLOSEST}
PORTS: Final = {"amqp": 5672, "amqps": 5671}
TRUE: Final = ("yes", "true", "on", "1")
UNAVAILABLE: Final = "unavailable"

WHY: Final = {
    "linkRoute": "messages to a broker are not routed through a mesh; its own queues are addresses of kind queue",
    "autoLink": "a mesh attaches no links to brokers by itself; its own queues are addresses of kind queue",
    "exchange": "a queue is bound to topics by oncemesh queue declare --bind",
    "binding": "a queue is bound to topics by oncemesh queue declare --bind",
    "vhost": "users' permissions are in the file security.rules",
    "policy": "users' permissions are in the file security.rules",
    "log": "a router logs to its folder in the run directory",
    "authServicePlugin": "users are in the file security.users: oncemesh user add",
}
"""Maps a section without a counterpart to a text for the user: the reason, or the setting that takes the section's
place."""
WHY_ATTRIBUTE: Final = {
    "authenticatePeer": "users are in the file security.users: oncemesh user add",
    "saslMechanisms": "users are in the file security.users: oncemesh user add",
    "saslUsername": "routers know each other by security.secret, or by their certificates",
    "saslPassword": "routers know each other by security.secret, or by their certificates",
    "workerThreads": "a router runs in one thread",
    "waypoint": "a mesh's own queues are addresses of kind queue",
    "pattern": "a rule has a prefix; only a pattern that ends with /# is one",
    "healthz": "a listener http serves health, metrics and a console",
    "metrics": "a listener http serves health, metrics and a console",
    "httpRootDir": "a listener http serves health, metrics and a console",
}
SAID: Final = {
    "listener": ("host", "port", "role", "http", "websockets", "sslProfile", "name", "requireSsl"),
    "connector": ("host", "port", "role", "cost", "sslProfile", "name", "verifyHostname"),
    "address": ("prefix", "pattern", "distribution", "name"),
    "router": (
        "id",
        "mode",
        "helloIntervalSeconds",
        "helloMaxAgeSeconds",
        "defaultDistribution",
        "hostName",
        "name",
        "area",
    ),
    "sslProfile": ("name", "certFile", "privateKeyFile", "caCertFile"),
    "policy": ("maxConnections", "maxMessageSize"),
    "network": ("networkId",),
}
"""The attributes of each section that this module reads."""
SETTINGS: Final = {
    ("router", "helloIntervalSeconds"): ("timing", "hello", "{}s"),
    ("router", "helloMaxAgeSeconds"): ("timing", "dead", "{}s"),
    ("listener", "idleTimeoutSeconds"): ("timing", "idle", "{}s"),
    ("listener", "initialHandshakeTimeoutSeconds"): ("limits", "opening", "{}s"),
    ("listener", "maxFrameSize"): ("limits", "max_frame", "{}"),
    ("listener", "maxSessions"): ("limits", "sessions", "{}"),
    ("listener", "linkCapacity"): ("limits", "window", "{}"),
    ("policy", "maxConnections"): ("limits", "connections", "{}"),
    ("policy", "maxMessageSize"): ("limits", "max_message", "{}"),
}
"""Maps an attribute to the setting of the whole mesh that it becomes: the part of the topology, the key, and the form
of the value."""
FILES: Final = {"certFile": "certificate", "privateKeyFile": "key", "caCertFile": "ca"}


@frozen(order=True)
class Remark:
    """A remark for the user: an attribute or section that has no counterpart, or that the user has to check."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@frozen
class Dialled:
    """A connector to another router."""

    line: int
    at: Address
    cost: int


@define
class RouterFile:
    """The configuration of one router."""

    path: Path
    name: str = ""
    line: int = 1
    host: str = ""
    """The name of the router's host; empty if it is unknown."""
    listeners: dict[str, list[Address]] = field(factory=dict)
    """The addresses of the listeners, by the kind of listener."""
    open: dict[str, None] = field(factory=dict)
    """The kinds of listeners that admit everybody."""
    dials: list[Dialled] = field(factory=list)
    bare: list[int] = field(factory=list)
    """The lines of the file that have listeners without TLS."""
    files: dict[str, str] = field(factory=dict)
    """Maps a key of `security` to the file name that this router uses for it."""


class Importer:
    """Makes one topology out of several configurations. `remarks` lists what has no counterpart in the topology."""

    def __init__(self, mesh: str) -> None:
        self.mesh = mesh
        self.remarks: list[Remark] = []
        self.conflicts: list[Remark] = []
        """The remarks about routers that two files describe. Any of these remarks makes the topology wrong."""
        self._rules: dict[str, str] = {}
        self._settings: dict[str, dict[str, str]] = {}
        self._routers: list[RouterFile] = []

    def take(self, path: Path, sections: Iterable[ConfigSection]) -> None:
        """Take the configuration of one router from the sections of its file."""
        at = RouterFile(path)
        readers: dict[str, Callable[[RouterFile, ConfigSection], None]] = {
            "router": self._router, "listener": self._listener, "connector": self._connector, "address": self._address,
            "sslProfile": self._profile, "policy": lambda at, section: None, "network": lambda at, section: None,
        }  # fmt: skip
        found = list(sections)
        for section in sorted(found, key=lambda one: one.name != "router"):
            read = readers.get(section.name)
            if read is None:
                why = WHY.get(section.name, "")
                self._lacks(at, section.line, section.name, why)
                continue
            self._rest(at, section)
            read(at, section)
        if not at.name:
            at.name = _name(path.stem)
            self._say(at, 1, f"no section router, expected one with an id: the router is named {at.name}")
        twin = next((other for other in self._routers if other.name == at.name), None)
        if twin is None:
            self._routers.append(at)
        else:
            text = f"{twin.path} has a router {at.name}, too, expected another id: the router of this file is left out"
            self.conflicts.append(Remark(path, at.line, text))

    def _say(self, at: RouterFile, line: int, text: str) -> None:
        self.remarks.append(Remark(at.path, line, text))

    def _lacks(self, at: RouterFile, line: int, what: str, why: str) -> None:
        self._say(at, line, f"{what} has no counterpart{': ' if why else ''}{why}")

    def _rest(self, at: RouterFile, section: ConfigSection) -> None:
        """Take the attributes of the section that are settings of the whole mesh. Add a remark for each attribute that
        this module does not read at all."""
        for name, item in section.items.items():
            setting = SETTINGS.get((section.name, name))
            if setting is not None and _role(section) == "normal" and item.text is not None:
                self._set(at, f"{section.name}.{name}", item, *setting)
            elif name not in SAID.get(section.name, ()) and not _is_open(section, name):
                self._lacks(at, item.line, f"{section.name}.{name}", WHY_ATTRIBUTE.get(name, WHY.get(section.name, "")))

    def _set(self, at: RouterFile, what: str, item: Item, part: str, key: str, form: str) -> None:
        value = form.format(item.text)
        if not re.fullmatch(r"[0-9]+", item.text or ""):
            self._lacks(at, item.line, f'{what}: "{item.text}"', "expected a whole number")
        elif int(item.text or 0) == 0:
            self._lacks(at, item.line, f"{what}: 0", f"{part}.{key} has a limit")
        elif (known := self._settings.setdefault(part, {}).setdefault(key, value)) != value:
            self._say(at, item.line, f"{what}: {part}.{key} is {known} for the whole mesh, not {value}")

    # The methods from here on take sections of one router's configuration.

    def _router(self, at: RouterFile, section: ConfigSection) -> None:
        if at.name:
            text = f"a second section router, expected one in a file: the first one is {at.name}"
            self.conflicts.append(Remark(at.path, section.line, text))
            return
        at.line, said = section.line, section.items.get("id")
        at.name = _name((said.text if said is not None else None) or at.path.stem)
        if said is not None and at.name != said.text:
            self._say(at, said.line, f'"{said.text}" cannot name a router: it is named {at.name}')
        at.host = _text(section, "hostName")
        if _text(section, "mode", "standalone") == "edge":
            self._lacks(at, section.items["mode"].line, "router.mode: edge", "it becomes a router like all others")
        default = section.items.get("defaultDistribution")
        self._rule(at, default.line if default else section.line, "", _text(section, "defaultDistribution", BALANCED))

    def _rule(self, at: RouterFile, line: int, prefix: str, distribution: str) -> None:
        kind = KINDS.get(distribution)
        if kind is None:
            if distribution != UNAVAILABLE:
                self._lacks(at, line, f'the distribution "{distribution}"', "")
            elif prefix:
                self._lacks(
                    at, line, f'the distribution {UNAVAILABLE} of "{prefix}"', "security.rules forbids addresses"
                )
            return
        if (known := self._rules.setdefault(prefix, kind)) != kind:
            self._say(at, line, f'"{prefix}" is of kind {known} for the whole mesh, not {kind}')

    def _address(self, at: RouterFile, section: ConfigSection) -> None:
        distribution = _text(section, "distribution", BALANCED)
        if "prefix" in section.items:
            prefix = _text(section, "prefix").removesuffix("/#").removesuffix(".#")
        else:
            pattern = _text(section, "pattern")
            if not pattern:
                self._say(at, section.line, "the address is left out: it has no prefix and no pattern, expected one")
                return
            prefix = pattern.removesuffix("#").removesuffix("/")
            if "*" in prefix or "#" in prefix or not pattern.endswith("#"):
                item = section.items.get("pattern")
                self._lacks(at, item.line if item else section.line, f'"{pattern}"', WHY_ATTRIBUTE["pattern"])
                return
        if prefix.startswith(OF_THE_MESH) or any(start.startswith(prefix) for start in OF_THE_MESH if prefix):
            self._lacks(at, section.line, f'"{prefix}"', "such addresses are the mesh's own")
            return
        self._rule(at, section.line, prefix, distribution)

    def _listener(self, at: RouterFile, section: ConfigSection) -> None:
        role = _role(section)
        if role not in ("normal", INTER_ROUTER):
            item = section.items["role"]
            self._lacks(at, item.line, f"a listener with role {role}", "it is left out")
            return
        address = self._place(at, section, "0.0.0.0")
        if address is None:
            return
        over_http = any(_text(section, name).lower() in TRUE for name in ("http", "websockets"))
        kind = INTER if role == INTER_ROUTER else AMQP_WS if over_http else AMQP
        at.listeners.setdefault(kind, []).append(address)
        if "sslProfile" not in section.items:
            at.bare.append(section.line)
        if _is_open(section, "authenticatePeer") or _is_open(section, "saslMechanisms"):
            at.open[kind] = None
        if over_http:
            self._say(
                at, section.line, "the listener becomes amqp-ws; the console, health and metrics need http: host:port"
            )

    def _connector(self, at: RouterFile, section: ConfigSection) -> None:
        role = _role(section)
        if role != INTER_ROUTER:
            self._lacks(at, section.line, f"a connector with role {role}", WHY["autoLink"])
        elif (address := self._place(at, section, "127.0.0.1")) is not None:
            cost = _text(section, "cost", "1")
            at.dials.append(Dialled(section.line, address.here, int(cost) if cost.isdecimal() else 1))

    def _place(self, at: RouterFile, section: ConfigSection, anywhere: str) -> Address | None:
        host, port = _text(section, "host") or anywhere, _text(section, "port", AMQP)
        try:
            number = PORTS.get(port, port)
            return Address.parse(f"[{host}]:{number}" if ":" in host else f"{host}:{number}")
        except ValueError as error:
            self._say(at, section.line, f"{section.name}: {error}")
            return None

    def _profile(self, at: RouterFile, section: ConfigSection) -> None:
        found = {FILES[name]: _text(section, name) for name in FILES if name in section.items}
        if at.files and found and found != at.files:
            self._lacks(at, section.line, "a second sslProfile", "a router has one certificate, for all its listeners")
        elif found:
            at.files = found

    # The methods from here on make the topology.

    def topology(self) -> dict[str, Any]:
        """The topology, as a mapping in the form of a topology file."""
        hosts = {address.host for router in self._routers for dialled in router.dials for address in (dialled.at,)}
        routers = {router.name: self._listeners(router, hosts) for router in self._routers}
        said: dict[str, Any] = {"mesh": self.mesh, "routers": routers}
        if links := self._links():
            said["links"] = links
        rules = sorted(self._rules.items(), key=lambda rule: -len(rule[0])) or [("topic/", TOPIC)]
        said["addresses"] = [{"prefix": prefix, "kind": kind} for prefix, kind in rules]
        said |= {part: settings for part, settings in self._settings.items() if settings}
        if security := self._security():
            said["security"] = security
        return said

    def _listeners(self, router: RouterFile, hosts: Iterable[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if AMQP not in router.listeners:
            self._say(router, router.line, f"{router.name} has no listener for clients: it gets amqp: 127.0.0.1:0")
            found[AMQP] = "127.0.0.1:0"
        for kind in (AMQP, INTER, AMQP_WS):
            places = [str(address) for address in router.listeners.get(kind, ())]
            if places:
                found[kind] = places[0] if len(places) == 1 else places
        if INTER not in found:
            found[INTER] = "127.0.0.1:0"
        first = Address.parse(found[AMQP] if isinstance(found[AMQP], str) else found[AMQP][0])
        if first.is_anywhere:
            dialled = next((host for host in hosts if _is_of(router, host)), None)
            host = dialled or router.host or router.name
            found["advertise"] = f"{host}:{first.port}"
            self._say(router, router.line, f"{router.name} listens everywhere: check advertise: {found['advertise']}")
        return found

    def _links(self) -> list[Any]:
        links: dict[tuple[str, str], Any] = {}
        for router in self._routers:
            for dialled in router.dials:
                other = self._dialled(router, dialled)
                if other is None:
                    continue
                ends = tuple(sorted((router.name, other.name)))
                if ends in links:
                    self._say(router, dialled.line, f"{ends[0]} and {ends[1]} are linked already: one link is enough")
                    continue
                long: dict[str, Any] = {"between": list(ends)}
                if dialled.cost != 1:
                    long["cost"] = dialled.cost
                if router.name == ends[0]:
                    long["address"] = str(dialled.at)
                elif INTER not in router.listeners:
                    self._say(
                        router, dialled.line, f"{other.name} dials {router.name}, as its name is lower: {router.name} "
                        "needs inter: host:port, unless both run on one host",
                    )  # fmt: skip
                links[ends[0], ends[1]] = list(ends) if len(long) == 1 else long
        return list(links.values())

    def _dialled(self, router: RouterFile, dialled: Dialled) -> RouterFile | None:
        """The router to which a connector connects; None if no file has this router."""
        fitting = [
            other
            for other in self._routers
            if other is not router
            for place in other.listeners.get(INTER, ())
            if place.port == dialled.at.port and (place.is_anywhere or place.host == dialled.at.host)
        ]
        named = [other for other in fitting if _is_of(other, dialled.at.host)] or fitting
        if len(named) == 1:
            return named[0]
        what = "several files have" if named else "no file has"
        self._say(router, dialled.line, f"{what} a router that listens at {dialled.at}, expected one: there is no link")
        return None

    def _security(self) -> Mapping[str, Any]:
        security: dict[str, Any] = {}
        files = [router for router in self._routers if router.files]
        for router in self._routers if files else ():
            for line in router.bare:
                self._say(router, line, "the listener has no sslProfile, but in a mesh with TLS all listeners speak it")
            for key, file in router.files.items():
                whole = file.replace(router.name, "{router}")
                if security.setdefault(key, whole) != whole:
                    self._say(router, router.line, f"security.{key} is {security[key]} for the whole mesh, not {file}")
        if files:
            self._say(files[0], files[0].line, "the common name of a router's certificate has to be the router's name")
        if is_open := dict.fromkeys(kind for router in self._routers for kind in router.open):
            security["open"] = list(is_open)
        return security


INTER_ROUTER: Final = "inter-router"


def _role(section: ConfigSection) -> str:
    return _text(section, "role", "normal") if section.name in ("listener", "connector") else "normal"


def _is_open(section: ConfigSection, name: str) -> bool:
    """Whether the attribute says that a peer needs no authentication."""
    said = _text(section, name).lower()
    if section.name == "connector":
        return name == "saslMechanisms" and said == "anonymous"
    return section.name == "listener" and (
        (name == "authenticatePeer" and said in ("no", "false", "off", "0"))
        or (name == "saslMechanisms" and said == "anonymous")
    )


def _text(section: ConfigSection, name: str, default: str = "") -> str:
    item = section.items.get(name)
    return default if item is None or item.text is None else item.text


def _is_of(router: RouterFile, host: str) -> bool:
    """Whether a host's name looks like the name of this router or of its host."""
    own = (router.name.lower(), router.host.lower())
    return host.lower() in own or host.lower().partition(".")[0] in own


def _name(said: str) -> str:
    """The given name, changed as far as needed to make it a valid name of a router."""
    name = re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9_.-]", "-", said)).strip(".-_")[:63] or "router"
    return name if names_a_router(name) else f"router-{name}"[:63].replace(".", "-")
