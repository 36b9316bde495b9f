"""The ingress of a replica set: each leader gives the answers that the set keeps (protocol 14.3)."""

import json

import attrs
import pytest

from failover.audit import Verdict
from tests.failover.audit import runs
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, FAR, MID, NEAR, ONE, START_MS, Client, Run
from topic.identity import Epoch, LinkIdentity, ingress_of
from topic.journal import Event


@attrs.frozen
class Ingress(Client):
    @property
    def identity(self) -> LinkIdentity:
        return ingress_of("q0")

    @property
    def detail(self) -> str:
        return json.dumps(json.loads(super().detail) | self.identity.shown())


INGRESS = Ingress("_sets", "c", "subscriber", logs=False)
STRANGER = attrs.evolve(FAR, container="_sets")
"""A client that calls itself as sets do."""


def accepted_again(subscriber: Client, *, on_next_attach: bool) -> Run:
    """The subscriber gets a delivery again that it has accepted, and accepts it again."""
    run = Run()
    key, name = run.key(ONE, 3), {"subscriber": subscriber.name}
    settled = run.find("c", Event.SETTLED, key)
    if on_next_attach:
        epoch = str(Epoch(settled["hlc"] - 2, "c", START_MS))
        for event, columns in ((Event.JOINED, {}), (Event.ATTACHED, {"detail": subscriber.detail})):
            run.before("c", settled, event, address=ADDRESS, epoch=epoch, **name, **columns)
    for event in (Event.DELIVERED, Event.OUTCOME):
        told = run.find("c", event, key, **name)
        run.before("c", settled, **{column: told[column] for column in told.keys() - {"time_us", "hlc"}})
    return run


@pytest.mark.parametrize(
    ("subscriber", "on_next_attach", "violations"),
    [
        (INGRESS, True, {}),
        (INGRESS, False, {"duplicated": 1}),
        (FAR, True, {"duplicated": 1}),
        (STRANGER, True, {"duplicated": 1}),
    ],
)
def test_only_an_ingress_accepts_again_on_its_next_attach(
    judged: Judged,
    monkeypatch: pytest.MonkeyPatch,
    subscriber: Client,
    on_next_attach: bool,
    violations: dict[str, int],
) -> None:
    monkeypatch.setattr(runs, "SUBSCRIBERS", (NEAR, MID, subscriber))
    report = judged(accepted_again(subscriber, on_next_attach=on_next_attach))
    assert report.violations == violations, report.findings
    assert (report.verdict is Verdict.VIOLATED) == bool(violations)
