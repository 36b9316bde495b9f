"""The changes of conditions: which there are, and what each makes of the code."""

import ast
import builtins

import pytest

from tests.mutants.changes import WATCHER, Change, changes, watched

SOURCE = """
def answer(a, b):
    assert a or b
    if a and not b:
        return 1
    return [n for n in (a or ()) if n]
"""
MADE = {
    "a and (not b) | never": "if False:",
    "a and (not b) | negated": "if not (a and (not b)):",
    "a | always": "if True and (not b):",
    "not b | always": "if a and True:",
    "n | always": "if True]",
    "n | negated": "if not n]",
    "a (2) | never": "in False or () if",
}


def test_each_condition_is_negated_and_dropped_and_no_other() -> None:
    assert {change.key.removeprefix("core.py answer: ") for change in changes("core.py", SOURCE)} == set(MADE)


@pytest.mark.parametrize("change", list(changes("core.py", SOURCE)), ids=str)
def test_a_change_changes_one_thing(change: Change) -> None:
    made = ast.unparse(change.tree(SOURCE))
    assert MADE[change.key.removeprefix("core.py answer: ")] in made
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    assert sum(one != other for one, other in zip(made.splitlines(), before, strict=True)) == 1


def test_what_is_watched_does_what_it_did_and_says_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def watcher(condition: str, value: object) -> object:
        asked.append(bool(value))
        return value

    monkeypatch.setattr(builtins, WATCHER, watcher, raising=False)
    namespace: dict[str, object] = {}
    exec(compile(watched("core.py", SOURCE), "core.py", "exec"), namespace)
    answer = namespace["answer"]
    assert callable(answer) and answer([0, 5], [1]) == [5]
    assert asked == [True, False, False, True, False, True]
