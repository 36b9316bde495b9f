"""The conditions of a module: breaks one at a time, or watches all.

A condition is the test of an `if`, `elif`, `while`, conditional expression, comprehension or guarded `case`, the
element of an `any` or `all`, or an operand of `and` or `or`. It is negated or dropped. A dropped condition is always
true (*always*), or never if it guards a `return`, `raise`, `continue` or `break`; a dropped operand has no effect. An
`assert` has no condition in this sense. Code that runs while a module is imported is left out.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs

WATCHER = "_watched_"
"""The name of a function in a watched module. It gets a condition, as `named`, and its value, and returns the value."""

Place = tuple[int, int]
"""A condition: the number of its node in the order of `ast.walk`, and its number within the node."""


def named(path: str, place: Place) -> str:
    return f"{path} {place[0]} {place[1]}"


@attrs.frozen
class Change:
    path: str
    """The path of the module, relative to the root of the repository."""
    line: int
    place: Place
    key: str
    """The condition and the change as text, which stays the same when other lines change."""
    instead: bool | None
    """The value that replaces the condition; None if it is negated."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.key.partition(' ')[2]}"

    def tree(self, source: str) -> ast.Module:
        """The module with the change."""
        tree = ast.parse(source)
        node, nth = self.place
        owner, name = _conditions(list(ast.walk(tree))[node])[nth]
        asked = _get(owner, name)
        _set(owner, name, ast.UnaryOp(ast.Not(), asked) if self.instead is None else ast.Constant(self.instead))
        return ast.fix_missing_locations(tree)


def changes(path: str, source: str) -> Iterator[Change]:
    """All changes of one module."""
    seen: Counter[str] = Counter()
    for place, node, (owner, name), function in _all_conditions(ast.parse(source)):
        asked = _get(owner, name)
        condition = f"{path} {function}: {ast.unparse(asked)}"
        seen[condition] += 1
        nth = f" ({seen[condition]})" if seen[condition] > 1 else ""
        dropped = _without(node)
        yield Change(path, asked.lineno, place, f"{condition}{nth} | {'always' if dropped else 'never'}", dropped)
        if not isinstance(node, ast.BoolOp):
            yield Change(path, asked.lineno, place, f"{condition}{nth} | negated", None)


def watched(path: str, source: str) -> ast.Module:
    """The module, with each condition reported to the `WATCHER`."""
    tree = ast.parse(source)
    for place, _, (owner, name), _ in reversed(list(_all_conditions(tree))):  # inner ones first
        arguments: list[ast.expr] = [ast.Constant(named(path, place)), _get(owner, name)]
        _set(owner, name, ast.Call(ast.Name(WATCHER, ast.Load()), arguments, []))
    return ast.fix_missing_locations(tree)


def _all_conditions(tree: ast.Module) -> Iterator[tuple[Place, ast.AST, tuple[Any, Any], str]]:
    """For each condition: its place and node, its owner with the name or index under which it stands, and its
    function."""
    functions = dict(_functions(tree, "", inside=False))
    for number, node in enumerate(ast.walk(tree)):
        if node in functions:
            for nth, condition in enumerate(_conditions(node)):
                if not isinstance(_get(*condition), ast.Constant | ast.Dict | ast.Tuple):  # `or {}`
                    yield (number, nth), node, condition, functions[node]


def _functions(node: ast.AST, name: str, *, inside: bool) -> Iterator[tuple[ast.AST, str]]:
    """The nodes within functions, with the function of each."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        name = f"{name}.{node.name}".lstrip(".")
    inside = inside or isinstance(node, ast.FunctionDef)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Assert):
            if inside:
                yield child, name
            yield from _functions(child, name, inside=inside)


def _conditions(node: ast.AST) -> list[tuple[Any, Any]]:
    """For each condition of the node: its owner, with the name or index under which it stands."""
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            return [(node, "test")]
        case ast.match_case(guard=ast.expr()):
            return [(node, "guard")]
        case ast.comprehension(ifs=several) | ast.BoolOp(values=several):
            return [(several, nth) for nth in range(len(several))]
        case ast.Call(func=ast.Name(id="any" | "all"), args=[ast.GeneratorExp() as each]):
            return [(each, "elt")]
        case _:
            return []


def _without(node: ast.AST) -> bool:
    """The constant value of a dropped condition of the node."""
    match node:
        case ast.BoolOp(op=ast.Or()) | ast.While() | ast.If(body=[*_, ast.Return() | ast.Raise()], orelse=[]):
            return False
        case ast.If(body=[*_, ast.Continue() | ast.Break()], orelse=[]):
            return False
        case _:
            return True


def _get(owner: Any, name: Any) -> ast.expr:
    asked: ast.expr = owner[name] if isinstance(owner, list) else getattr(owner, name)
    return asked


def _set(owner: Any, name: Any, asked: ast.expr) -> None:
    if isinstance(owner, list):
        owner[name] = asked
    else:
        setattr(owner, name, asked)
