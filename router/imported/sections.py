"""Reads the sections of `qdrouterd.conf` and `skrouterd.json`. Each section and attribute keeps the number of its line.

A file `.conf` has sections `name { … }`. In a section, each attribute has a line `key: value`, or a map `key: { … }`. A
file of JSON is a list of pairs of a name and a map. Both may have lines of comments, which begin with `#`.
"""

import re
from pathlib import Path
from typing import Final

from attrs import frozen

from router.mesh.errors import FileError
from router.mesh.marked import Malformed, MarkedList, MarkedMap, MarkedText, Value, read
from router.mesh.reading import contents, shown

WHAT: Final = "a configuration of qpid-dispatch or skupper-router"
SECTION: Final = re.compile(r"([\w.-]+)\s*\{")
MAP: Final = re.compile(r'"?([$\w-]+)"?\s*:\s*\{')
ITEM: Final = re.compile(r"([\w-]+)\s*:\s*(\S.*)")
QUOTED: Final = re.compile(r'"[^"]*"')
WITH_HASH: Final = ("pattern", "bindingKey", "hostname")
"""Attributes whose value may contain a `#`. In other values, a `#` begins a comment."""


class ConfigurationError(FileError):
    """The faults of a configuration, one line each."""


@frozen
class Item:
    """An attribute of a section. `text` is None for a list or a map."""

    line: int
    text: str | None


@frozen
class ConfigSection:
    name: str
    """The name of the section in the form of JSON, such as `sslProfile`. The name has no prefix of qpid-dispatch."""
    line: int
    items: dict[str, Item]


def sections_of(path: Path) -> list[ConfigSection]:
    """Read the sections of a configuration file. Raises ConfigurationError."""
    try:
        text = contents(path, WHAT)
        if re.match(rb"(\s*#[^\n]*\n)*\s*[\[{]", text):
            return _of_json(text)
        return _of_conf(text.decode().splitlines())
    except OSError as error:
        raise ConfigurationError(path, [f"{path}: {error.strerror}, expected {WHAT}"]) from None
    except UnicodeDecodeError:
        raise ConfigurationError(path, [f"{path}: not UTF-8, expected {WHAT}"]) from None
    except Malformed as error:
        where = path if error.line is None else f"{path}:{error.line}"
        raise ConfigurationError(path, [f"{where}: {error.problem}"]) from None


def _camel(name: str) -> str:
    """Turn a name such as `ssl-profile` into `sslProfile`."""
    first, *rest = re.split("[-_]", name)
    return first + "".join(word.capitalize() for word in rest)


def _named(name: str) -> str:
    for prefix in ("org.apache.qpid.dispatch.", "io.skupper.router.", "router.config."):
        name = name.removeprefix(prefix)
    return _camel(name)


def _of_json(text: bytes) -> list[ConfigSection]:
    """Read the sections of a JSON file. The reader of YAML also reads JSON, and knows the line of each value."""
    lines = text.expandtabs(2).split(b"\n")
    root = read(b"\n".join(b"" if line.lstrip().startswith(b"#") else line for line in lines))
    if not isinstance(root, MarkedList):
        raise Malformed(root.line, f'{shown(root)}, expected a list of pairs such as ["router", {{…}}]')
    return [_pair(pair) for pair in root]


def _pair(pair: Value) -> ConfigSection:
    if not isinstance(pair, MarkedList) or len(pair) != 2:
        raise Malformed(pair.line, f'{shown(pair)}, expected a pair such as ["router", {{…}}]')
    name, items = pair
    if not isinstance(name, MarkedText) or not isinstance(items, MarkedMap):
        raise Malformed(pair.line, 'a pair of other values, expected one such as ["router", {…}]')
    found = {
        _camel(key): Item(key.line, str(value) if isinstance(value, MarkedText) else None)
        for key, value in items.items()
    }
    return ConfigSection(_named(name), name.line, found)


def _of_conf(lines: list[str]) -> list[ConfigSection]:
    found: list[ConfigSection] = []
    section: ConfigSection | None = None
    # The number of maps within the section that are open at this line.
    depth = 0
    for number, line in enumerate(map(str.strip, lines), 1):
        bare = QUOTED.sub("", line).partition("#")[0]
        depth_after = depth + bare.count("{") - bare.count("}")
        item = ITEM.fullmatch(line)
        if item is None or item[1] not in WITH_HASH:
            line = line.partition("#")[0].strip()
            item = ITEM.fullmatch(line)
        if not line:
            continue
        if depth:
            depth = max(0, depth_after)
        elif section is None:
            if (begin := SECTION.fullmatch(line)) is None:
                raise Malformed(number, f'"{line[:80]}", expected a section such as router {{')
            section = ConfigSection(_named(begin[1]), number, {})
        elif line == "}":
            found.append(section)
            section = None
        elif (begin := MAP.match(line)) is not None:
            section.items[_camel(begin[1])] = Item(number, None)
            depth = depth_after
        elif item is not None:
            section.items[_camel(item[1])] = Item(number, item[2].strip().strip('"'))
        else:
            raise Malformed(number, f'"{line[:80]}", expected an attribute such as host: 0.0.0.0, or }}')
    if section is not None:
        raise Malformed(section.line, f"the section {section.name} has no end, expected a line with }}")
    return found
