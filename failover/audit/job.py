"""The steps of an audit, from the run directories to the report, and the steps to the story of one delivery."""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import attrs

from failover.audit.bucket import Bucket, judge_bucket, judge_joined
from failover.audit.measure.crossings import crossings, router_rows
from failover.audit.measure.figures import measures
from failover.audit.measure.frame import make_frame
from failover.audit.mesh.at_rest import AtRest, at_rest
from failover.audit.mesh.case import make_case
from failover.audit.mesh.clients import find_clients
from failover.audit.read.entries import (
    KEYS_LISTED,
    DeliveryEntry,
    QueuePlace,
    find_keys,
    has_key,
    has_position,
    keys_at,
    pick_entries,
    queue_places,
)
from failover.audit.read.faults import ChaosFile, find_chaos
from failover.audit.read.files import AuditError, Progress, distinct, ignore, local_dirs
from failover.audit.read.inventory import take_inventory
from failover.audit.read.logs import Logs, open_logs
from failover.audit.read.stores import find_stores
from failover.audit.report.report import Finding, Report
from failover.audit.report.rows import report_of
from failover.audit.report.story import DeliveryStory, Setting, compose_story
from topic.identity import KEY_LENGTH

STORIES_KEPT = 5
"""For each kind of finding, the report tells the stories of at most this number of deliveries."""


def run(
    run_dirs: Sequence[str],
    master: str | None = None,
    *,
    spark: bool = False,
    tables: str | None = None,
    progress: Progress = ignore,
) -> Report:
    """Audit the logs below these directories, which belong to one mesh (see `open_logs`). `tables`: the folder into
    which Spark writes the tables; None to write none. Raises `AuditError` if the directories cannot be read."""
    run_dirs = distinct(run_dirs)
    local_dirs(run_dirs)
    # Read the stores before the logs, so that the logs have every entry that led to their content.
    stored = at_rest(*find_stores(run_dirs))
    if tables is not None:
        return _run_with_tables(run_dirs, master, tables, progress, stored)
    with open_logs(run_dirs, master, spark=spark, progress=progress) as logs:
        return judge_logs(logs, run_dirs, find_chaos(run_dirs, logs.text), stored)


def _run_with_tables(
    run_dirs: Sequence[str], master: str | None, folder: str, progress: Progress, stored: AtRest
) -> Report:
    """Audit, and write the tables. If the folder belongs to another program, this raises before any log is read; if the
    folder is on this machine, even before Spark starts."""
    # Imported late, because the import takes as long as the audit of a short run.
    from failover.audit.read.spark import spark_logs
    from failover.audit.tables import TablesFolder, write_tables

    ours = TablesFolder(folder)
    with spark_logs(run_dirs, master, progress, tagged=True) as logs:
        ours.open(logs.spark)
        report = judge_logs(logs, run_dirs, find_chaos(run_dirs, logs.text), stored)
        write_tables(logs, ours)
        return report


def judge_logs(logs: Logs, run_dirs: Sequence[str], chaos: ChaosFile, stored: AtRest | None = None) -> Report:
    """Judge the logs. `stored`: the content of the replicas' stores, which was read before these logs."""
    control = logs.control()
    inventory = take_inventory(control)
    case = make_case(control, inventory, logs.some())
    case = attrs.evolve(case, at_rest=(stored or AtRest()).of(case.contents))
    known = list(case.logs.values())
    frame = make_frame(known, case.clients, chaos)
    left = Bucket()
    for found in logs.work(partial(judge_bucket, case, frame), judge_joined):
        left.add(found)
    tally = left.tally
    if not case.at_rest.is_there_still:
        tally.unstored.clear()
    report = report_of(run_dirs, tally, case, inventory)
    faults = chaos.chaos.faults if chaos.chaos else ()
    setting = Setting([row for row in control if row.event >= 0], inventory.logs, case.clients, faults)
    return attrs.evolve(
        report,
        routers=router_rows(left.happened, control, inventory.logs),
        crossings=crossings(left.happened, frame.instants),
        measures=measures(left.metered, known, case.clients, chaos),
        stories=tuple(_stories(report.findings, logs, setting)),
    )


def _stories(findings: Sequence[Finding], logs: Logs, setting: Setting) -> Iterator[DeliveryStory]:
    """Yield the stories of the first few findings of each kind. All stories need only one pass over the rows. If there
    are no such findings, there is no pass."""
    kept: dict[str, list[str]] = {}
    for finding in findings:
        keys = kept.setdefault(finding.kind, [])
        is_of_delivery = len(finding.key) == KEY_LENGTH
        if is_of_delivery and finding.key not in keys and len(keys) < STORIES_KEPT:
            keys.append(finding.key)
    keys = [key for key in dict.fromkeys(finding.key for finding in findings) if any(key in of for of in kept.values())]
    if not keys:
        return
    told: dict[str, list[DeliveryEntry]] = {key: [] for key in keys}
    for entry in _entries(logs, keys):
        told[entry.key].append(entry)
    yield from (compose_story(key, entries, setting) for key, entries in told.items())


def _entries(logs: Logs, keys: Sequence[str]) -> Iterator[DeliveryEntry]:
    return (entry for found in logs.ask(partial(pick_entries, keys)) for entry in found)


class StoryError(AuditError):
    """No delivery has this key, or several deliveries have keys with this beginning."""


def tell_story(run_dirs: Sequence[str], key: str, master: str | None = None) -> DeliveryStory:
    """Tell the life of one delivery. `key`: its key, or a beginning that only its key has. Raises `StoryError` if there
    is not exactly one such delivery, and `AuditError` if the directories cannot be read."""
    run_dirs = distinct(run_dirs)
    if len(key) > KEY_LENGTH:
        raise StoryError(f"{key} is not a delivery key, expected at most {KEY_LENGTH} characters")
    with open_logs(run_dirs, master, wanted=has_key(key)) as logs:
        control = logs.control()
        whole = _only({one for found in logs.ask(partial(find_keys, key)) for one in found}, key)
        events, chaos = [row for row in control if row.event >= 0], find_chaos(run_dirs, logs.text).chaos
        found = take_inventory(control).logs
        setting = Setting(events, found, find_clients(events, found), chaos.faults if chaos else ())
        story = compose_story(whole, list(_entries(logs, [whole])), setting)
        places = {one for found in logs.ask(partial(queue_places, whole)) for one in found}
    return attrs.evolve(story, notes=(*story.notes, *_through_queues(run_dirs, master, whole, places)))


def _through_queues(
    run_dirs: Sequence[str], master: str | None, key: str, places: Collection[QueuePlace]
) -> Iterator[str]:
    """Yield a note for each other delivery of the same message: one that brought it into a queue, or one that took it
    from there to a consumer. `places`: the positions, each with its queue, that the message of the delivery `key` has
    had."""
    if not places:
        return
    with open_logs(run_dirs, master, wanted=has_position({position for _, position in places})) as logs:
        found = {one for some in logs.ask(partial(keys_at, places)) for one in some}
    for brought, text in ((True, "it came into the queue as delivery"), (False, "it went to a consumer as delivery")):
        yield from (f"{text} {other}" for other, is_first in sorted(found) if is_first is brought and other != key)


def _only(found: set[str], key: str) -> str:
    if not found:
        raise StoryError(f"these logs have no delivery with a key that begins with {key}")
    if len(found) > 1:
        listed = sorted(found)[:KEYS_LISTED]
        more = "" if len(found) <= KEYS_LISTED else ["and more"]
        raise StoryError("\n  ".join([f"several keys begin with {key}:", *listed, *more]))
    return found.pop()
