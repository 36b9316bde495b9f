"""What a continuous audit carries from one run of the command to the next: a file, replaced as a whole.

It is pickled, so a checkpoint is to be trusted as the program is: who may write it may run code here.
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
"""It is written so often."""


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        """The folder is made if there is none."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / NAME
        self._saved = time.monotonic()

    def load(self, run_dirs: Sequence[str]) -> Follower | None:
        """None if there is none yet."""
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
        """If the last was written some time ago, or `now`. Where it cannot be written the one before stays, and the
        audit goes on: its verdict is worth more than the time of a restart."""
        if not now and time.monotonic() - self._saved < EVERY_S:
            return
        self._saved = time.monotonic()
        new = self._path.with_suffix(".new")
        try:
            self._write(new, pickle.dumps(follower))
            new.replace(self._path)
        except OSError as error:
            log.warning("the checkpoint cannot be written, the audit continues: %s", error)
            with suppress(OSError):  # of a full disk it would hold a part
                new.unlink()

    def _write(self, path: Path, payload: bytes) -> None:
        with path.open("wb") as file:
            file.write(MAGIC + zlib.crc32(payload).to_bytes(4, "big") + payload)
            file.flush()
            os.fsync(file.fileno())
