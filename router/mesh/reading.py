"""Reads a YAML file of ours into attrs classes, or reports all of its faults at once.

Each fault reads `file:line: where: what, expected what`. `Reader` checks the shape of each part by cattrs: unknown and
missing keys, and every value with its own parser. A parser takes the text of the file, and raises ValueError, whose
text quotes the wrong value and says what is expected. Code for each kind of file checks the rules between its parts:
router/mesh/topology.py, failover/chaos/script/script.py.
"""

import difflib
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import attrs
from cattrs import BaseConverter, ClassValidationError, Converter, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

from router.mesh.errors import FileError
from router.mesh.marked import Malformed, MarkedList, MarkedMap, MarkedText, Value, read
from router.mesh.quantities import format_size, parse_size

Part = TypeVar("Part")
Hook = Callable[[Value, Any], Any]

# The limit is ten times the size of the file of a mesh of a thousand routers.
_MOST_BYTES = 1 << 20

KEY = "key"
"""The key, in the metadata of an attrs field, under which the field's key in the file stands. Only a field whose key in
the file is no Python name has this metadata."""


_LONG = re.compile(r'([^\s"]{100})[^\s"]{20,}')
"""A word of a fault that is too long to be shown whole, and its start."""


def shown(value: Value) -> str:
    if isinstance(value, MarkedText):
        return f'"{value}"' if value else "an empty value"
    return "a mapping" if isinstance(value, MarkedMap) else "a list"


def joined_with_or(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def expected(word: str, known: Iterable[str]) -> str:
    """The end of an error text about an unknown word: `expected kill or cut; did you mean "kill"?`"""
    names = list(known)
    by_look = {name.casefold(): name for name in names}
    like = difflib.get_close_matches(word.casefold(), by_look, n=1)
    meant = f'; did you mean "{by_look[like[0]]}"?' if like else ""
    return f"expected {joined_with_or(names)}{meant}"


def given(root: MarkedMap, key: str) -> "Value | None":
    """The value under `key`; None if it is missing or empty."""
    found = root.get(MarkedText(key))
    return None if found == "" else found


def text(parse: Callable[[str], Any]) -> Hook:
    def hook(value: Value, _: Any) -> Any:
        if not isinstance(value, MarkedText):
            raise ValueError(f"{shown(value)}, expected a single value")
        return parse(str(value))

    return hook


def whole(least: int, most: int) -> Callable[[str], int]:
    def parse(number: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", number) or not least <= int(number) <= most:
            raise ValueError(f'"{number}", expected a whole number from {least} to {most}')
        return int(number)

    return parse


def size(least: int, most: int) -> Callable[[str], int]:
    def parse(number: str) -> int:
        found = parse_size(number)
        if not least <= found <= most:
            raise ValueError(f'"{number}", expected a size from {least} to {most} bytes')
        return found

    return parse


def keys_of(cls: type) -> dict[str, str]:
    """Maps each field of the class to its key in the file."""
    return {field.name: field.metadata.get(KEY, field.name) for field in attrs.fields(cls)}


def converter(hooks: Mapping[type, Mapping[str, Hook]]) -> BaseConverter:
    """A converter that reads the fields with the given parsers. `hooks`: class -> field -> parser."""
    made = Converter(forbid_extra_keys=True, detailed_validation=True)
    for cls, fields in hooks.items():
        keys = keys_of(cls)
        overrides = {name: override(struct_hook=hook, rename=keys[name]) for name, hook in fields.items()}
        made.register_structure_hook(cls, make_dict_structure_fn(cls, made, **overrides))  # type: ignore[arg-type]
    return made


def document(path: Path, kind: str, keys: Iterable[str], error: type[FileError]) -> MarkedMap:
    """Read a file of this kind, which has to be a mapping. Raises `error`."""
    try:
        root = read(contents(path, f"a {kind} file"))
    except OSError as reason:
        raise error(path, [f"{path}: {reason.strerror}, expected a {kind} file"]) from None
    except Malformed as reason:
        where = path if reason.line is None else f"{path}:{reason.line}"
        raise error(path, [f"{where}: {reason.problem}"]) from None
    if not isinstance(root, MarkedMap):
        raise error(path, [f"{path}:{root.line}: {shown(root)}, expected a mapping with {joined_with_or(keys)}"])
    return root


def contents(path: Path, what: str) -> bytes:
    """The content of a regular file of at most 1 MiB. Other files are refused, because reading a pipe could wait
    without end. Raises OSError or Malformed."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise Malformed(None, f"not a regular file, expected {what}")
    if found.st_size > _MOST_BYTES:
        raise Malformed(None, f"{format_size(found.st_size)}, expected {what} of at most 1 MiB")
    return path.read_bytes()


class Reader:
    """Reads all parts of a file. It reads on after a fault, so that one run shows all faults."""

    CONVERTER: ClassVar[BaseConverter]

    def __init__(self) -> None:
        self.problems: list[tuple[int, str]] = []

    def fail(self, line: int, problem: str) -> None:
        self.problems.append((line, _LONG.sub(r"\1…", problem)))

    def check(self, path: Path, error: type[FileError]) -> None:
        """Raise `error` if there were faults."""
        if self.problems:
            raise error(path, [f"{path}:{line}: {problem}" for line, problem in sorted(self.problems)])

    def keys(self, root: MarkedMap, known: Iterable[str]) -> None:
        for key in root:
            if key not in known:
                self.fail(key.line, f'unknown key "{key}", {expected(key, known)}')

    def items(self, root: MarkedMap, key: str, such: str, where: str = "") -> Iterator[Value]:
        """Yield the values of the list under `key`. `where`: the part of the file that has the key, with a dot."""
        found = given(root, key)
        if isinstance(found, MarkedList):
            yield from found
        elif found is not None:
            self.fail(found.line, f"{where}{key}: not a list, expected {such}")

    def part(self, root: MarkedMap, key: str, cls: type[Part]) -> Part | None:
        found = given(root, key)
        return None if found is None else self.structure(found, cls, key)

    def structure(self, value: Value, cls: type[Part], where: str) -> Part | None:
        keys = keys_of(cls)
        if not isinstance(value, MarkedMap):
            self.fail(
                value.line, f"{where}: {shown(value)} is not a mapping, expected the keys {', '.join(keys.values())}"
            )
            return None
        try:
            return self.CONVERTER.structure(value, cls)
        except ClassValidationError as error:
            self._explain(error, value, where, keys)
            return None

    def _explain(self, error: ClassValidationError, value: MarkedMap, where: str, fields: Mapping[str, str]) -> None:
        """Report the faults that `error` has found. `fields`: field of the class -> its key in the file."""
        keys = list(fields.values())
        attributes, others = error.group_exceptions()
        for cause, note in attributes:
            key = fields[note.name]
            found = value.get(MarkedText(key))
            if found is None:
                self.fail(value.line, f'{where}: "{key}" is missing, expected the keys {", ".join(keys)}')
            else:
                self.fail(found.line, f"{where}.{key}: {cause}")
        for cause in others:
            assert isinstance(cause, ForbiddenExtraKeysError), cause
            for key in value:
                if key not in keys:
                    self.fail(key.line, f'{where}: unknown key "{key}", {expected(key, keys)}')
