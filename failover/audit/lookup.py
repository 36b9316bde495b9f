"""Finds what all logs say of one delivery: straight from the files where they are local, through Spark where not.

Spark takes longer to start than a laptop needs to search the logs of a run. Blocks that tell of other deliveries only
are searched for the key, and no more.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from failover.audit.faults import find_chaos
from failover.audit.inventory import take_inventory
from failover.audit.local import LocalLogs
from failover.audit.parties import find_parties
from failover.audit.picking import KEYS_LISTED
from failover.audit.reading import AuditError, Logs, contents, distinct, files_of, ignore, local_dirs
from failover.audit.story import Setting, Story, tell
from topic.identity import KEY_LENGTH


class StoryError(AuditError):
    """There is no one delivery to tell of."""


def story(run_dirs: Sequence[str], key: str, master: str | None = None) -> Story:
    """The life of the delivery with this key, or with the only one that begins so."""
    run_dirs = distinct(run_dirs)
    if len(key) > KEY_LENGTH:
        raise StoryError(f"{key} is no delivery key: these have {KEY_LENGTH} characters")
    with _open_logs(run_dirs, key, master) as logs:
        control = logs.control()
        whole = _only(logs.keys(key), key)
        events, chaos = [row for row in control if row.event >= 0], find_chaos(run_dirs, logs.text).chaos
        found = take_inventory(control).logs
        setting = Setting(events, found, find_parties(events, found), chaos.faults if chaos else ())
        return tell(whole, list(logs.entries([whole])), setting)


@contextmanager
def _open_logs(run_dirs: Sequence[str], key: str, master: str | None) -> Iterator[Logs]:
    local, start = local_dirs(run_dirs), key.encode()
    if len(local) == len(run_dirs):
        files, size = files_of(local)
        yield LocalLogs(contents(files, size), size, wanted=lambda block: start in block.keys)
        return
    from failover.audit.on_spark import spark_logs

    with spark_logs(run_dirs, master, ignore) as logs:
        yield logs


def _only(found: set[str], key: str) -> str:
    if not found:
        raise StoryError(f"no delivery with a key that begins with {key} in these logs")
    if len(found) > 1:
        listed = sorted(found)[:KEYS_LISTED]
        more = "" if len(found) <= KEYS_LISTED else ["and more"]
        raise StoryError("\n  ".join([f"{key} is the start of several deliveries' keys:", *listed, *more]))
    return found.pop()
