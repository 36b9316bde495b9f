"""Reads YAML into plain values that know their line in the file, so that each error can name the line.

All scalars stay text: the reader of a key, not YAML, decides what `no`, `1e3` or `0x10` mean. The module never builds
Python objects. It never follows aliases, because a file of a few hundred bytes could unfold into gigabytes."""

from typing import TypeAlias

import yaml

Value: TypeAlias = "MarkedText | MarkedList | MarkedMap"


class MarkedText(str):
    line: int


class MarkedList(list[Value]):
    line: int


class MarkedMap(dict[MarkedText, Value]):
    line: int


class Malformed(Exception):
    """The text is not YAML, or uses a part of YAML that is not accepted here."""

    def __init__(self, line: int | None, problem: str):
        super().__init__(problem)
        self.line = line
        self.problem = problem


class _Composer(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            line: int = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
            raise Malformed(line, "an alias (*name), expected the value itself")
        return super().compose_node(parent, index)


def read(data: bytes) -> Value:
    """Return the one document in `data`. Raises Malformed."""
    try:
        node: yaml.Node | None = yaml.compose(data.decode(), Loader=_Composer)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Malformed(mark.line + 1 if mark else None, f"not YAML: {error.problem or error.context}") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Malformed(line, f"not UTF-8: a byte 0x{data[error.start]:02x}, expected a text in UTF-8") from None
    except yaml.YAMLError as error:
        raise Malformed(None, f"not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise Malformed(None, "lists or maps are nested too deeply") from None
    if node is None:
        raise Malformed(1, "the file is empty")
    return _value(node)


def _value(node: yaml.Node) -> Value:
    result: Value
    if isinstance(node, yaml.MappingNode):
        result = _mapping(node)
    elif isinstance(node, yaml.SequenceNode):
        result = MarkedList(_value(item) for item in node.value)
    else:
        result = MarkedText(node.value)
    result.line = node.start_mark.line + 1
    return result


def _mapping(node: yaml.MappingNode) -> MarkedMap:
    result = MarkedMap()
    for key_node, value_node in node.value:
        key = _value(key_node)
        if not isinstance(key, MarkedText):
            raise Malformed(key.line, "a key that is not text, expected a name")
        if key in result:
            raise Malformed(key.line, f'"{key}" is given twice, expected once')
        result[key] = _value(value_node)
    return result
