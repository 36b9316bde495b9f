"""Errors that users are told in plain words: a run directory that does not do, a file that is wrong.

Loads nothing: the command line knows them before it loads a command.
"""

from os import PathLike

from router.text.printable import visible


class RunError(Exception):
    """What a command asked of a run directory cannot be done, with the reason."""


class NoMeshError(RunError):
    """No mesh runs where a command looks for one."""


class FileError(Exception):
    """What is wrong with a file, one line each; what it quotes may be anybody's."""

    def __init__(self, path: str | PathLike[str], messages: list[str]):
        assert messages
        lines = messages if len(messages) == 1 else [f"{len(messages)} problems in {path}:", *messages]
        super().__init__("\n  ".join(map(visible, lines)))
        self.messages = messages
