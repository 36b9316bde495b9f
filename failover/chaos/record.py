"""Writes DIR/chaos.json, the faults of a run, for the audit: when the run begins, and again when it ends.

    {"script", "seed", "mesh", "began_us", "ended_us", "offered": messages per second, "duration_s": of load and faults,
     "faults": [{"fault", "targets", "at_us", "until_us", "text"}],
     "clients": {NAME: {"role", ...counts}}, "crashes": routers and clients that ended by themselves,
     "unfinished": [the parts of the run that had not ended, a line each]}

Times are µs of this machine's wall clock, as in the delivery logs.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from failover.chaos.accounts import consumer_counts, shared_counts, subscriber_counts
from failover.chaos.clients import RunningClients
from failover.chaos.ledger import published, received
from failover.chaos.nemesis import Struck, now_us
from failover.chaos.script.script import Script
from topic.delivery.kinds import AddressKinds

FILE = "chaos.json"


class RunRecord:
    def __init__(self, folder: Path, script: Script, seed: int) -> None:
        self._path = folder / FILE
        self._kinds = AddressKinds(script.topology.kinds)
        self._data: dict[str, Any] = {
            "script": script.name,
            "seed": seed,
            "mesh": script.topology.mesh,
            "began_us": now_us(),
            "ended_us": None,
            "offered": script.offered,
            "duration_s": script.duration,
            "faults": [],
            "clients": {client.name: {"role": client.role} for client in script.clients},
            "crashes": 0,
            "unfinished": [],
        }
        self._write()

    def end(self, struck: Iterable[Struck], clients: RunningClients, crashes: int, unfinished: Iterable[str]) -> None:
        """Write the end of the run. All clients have ended by then."""
        for name, account in accounts_of(clients, self._kinds).items():
            self._data["clients"][name].update(account)
        self._data["faults"] = [
            {
                "fault": one.word,
                "targets": list(one.targets),
                "at_us": one.at_us,
                "until_us": one.until_us,
                "text": one.text,
            }
            for one in struck
        ]
        self._data.update(ended_us=now_us(), crashes=crashes, unfinished=list(unfinished))
        self._write()

    @property
    def totals(self) -> Counter[str]:
        """The sum of each count over all clients."""
        total = Counter[str]()
        for account in self._data["clients"].values():
            total.update({what: count for what, count in account.items() if what != "role"})
        return total

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self._data, indent=1) + "\n")
        os.replace(fresh, self._path)


def accounts_of(clients: RunningClients, kinds: AddressKinds) -> dict[str, dict[str, int]]:
    """The counts of each client. Subscribers attach before anything is published, so each subscriber is owed every
    message of its address. At a balanced address, each message is owed to one of the subscribers."""
    publishers = {one.name: (one.client.address, published(one.state)) for one in clients.of_role("publisher")}
    shared: dict[str, list[Sequence[int]]] = {}
    found = {name: account.counts() for name, (_, account) in publishers.items()}
    for one in clients.of_role("subscriber"):
        theirs, address = received(one.state), one.client.address
        if kinds.of(address).is_for_all:
            owed = {name: account for name, (of, account) in publishers.items() if of == address}
            found[one.name] = subscriber_counts(theirs, owed)
        else:
            found[one.name] = consumer_counts(theirs)
            for name in [name for name, (of, _) in publishers.items() if of == address]:
                shared.setdefault(name, []).append(theirs.get(name, ()))
    for name, lists in shared.items():
        found[name] |= shared_counts(publishers[name][1], lists)
    return found
