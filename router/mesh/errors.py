"""Errors for users in plain words: a run directory that cannot be used, a file with faults.

Imports nothing heavy: the command line imports it before it loads a command.
"""

from os import PathLike

from router.text.printable import visible


class RunError(Exception):
    """A command cannot do its work with a run directory; the text has the reason."""


class NoMeshError(RunError):
    """No mesh runs in the place where a command looks for one."""


class FileError(Exception):
    """The faults of a file, one line each. The lines may quote text of strangers."""

    def __init__(self, path: str | PathLike[str], messages: list[str]):
        assert messages
        lines = messages if len(messages) == 1 else [f"{len(messages)} problems in {path}:", *messages]
        super().__init__("\n  ".join(map(visible, lines)))
        self.messages = messages
