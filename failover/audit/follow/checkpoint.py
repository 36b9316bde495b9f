"""Keeps the state of a continuous audit in a file, from one run of the command to the next. Each save replaces the
file.

The file is a pickle, and a pickle may run code when it is read. So a user who may write the file can run code here.
"""

import logging
import os
import pickle
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from failover.audit.follow.follower import Follower
from failover.audit.read.files import AuditError

log = logging.getLogger("oncemesh")

NAME = "follow.checkpoint"
MAGIC = b"OMF3"
EVERY_S = 30.0
"""The least seconds from one save of the checkpoint to the next."""


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        """Create the folder of the checkpoint if it does not exist."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / NAME
        self._saved = time.monotonic()

    def load(self, run_dirs: Sequence[str]) -> Follower | None:
        """Return the saved follower; None if there is no file yet. Raises `AuditError` if the file is damaged, or
        belongs to an audit of other directories."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        payload = content[len(MAGIC) + 4 :]
        if content[: len(MAGIC) + 4] != MAGIC + zlib.crc32(payload).to_bytes(4, "big"):
            raise AuditError(f"{self._path}: not a checkpoint, or a damaged one; remove it to begin the audit anew")
        found: Follower = pickle.loads(payload)
        if list(found.run_dirs) != list(run_dirs):
            raise AuditError(f"{self._path}: this checkpoint belongs to an audit of {', '.join(found.run_dirs)}")
        return found

    def save(self, follower: Follower, *, now: bool = False) -> None:
        """Save the follower if the last save is at least `EVERY_S` ago, or if `now`.

        If the file cannot be written, log a warning and keep the previous file. The audit continues, because a verdict
        is worth more than a quick restart.
        """
        if not now and time.monotonic() - self._saved < EVERY_S:
            return
        self._saved = time.monotonic()
        new = self._path.with_suffix(".new")
        try:
            self._write(new, pickle.dumps(follower))
            new.replace(self._path)
        except OSError as error:
            log.warning("the checkpoint cannot be written, the audit continues: %s", error)
            with suppress(OSError):  # if the disk is full, the file is incomplete
                new.unlink()

    def _write(self, path: Path, payload: bytes) -> None:
        with path.open("wb") as file:
            file.write(MAGIC + zlib.crc32(payload).to_bytes(4, "big") + payload)
            file.flush()
            os.fsync(file.fileno())
