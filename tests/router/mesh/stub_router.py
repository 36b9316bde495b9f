"""A replacement for a router process that keeps the launcher's contract and nothing more.

It takes the arguments and the inherited listeners of a router, sends its status on every connection (JSON, then end of
stream), sees every router whose inter listener takes a connection, and ends with status 0 on SIGTERM, SIGQUIT or
SIGUSR1. A file `behaviour` in its folder makes it misbehave: `fail` ends it at once, `blind` sees no router, `stubborn`
ignores these signals.
"""

import argparse
import json
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType


def sees(inter: str) -> bool:
    host, port = inter.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def status(name: str, run_dir: Path, blind: bool) -> dict[str, object]:
    entries = json.loads((run_dir / "mesh.json").read_text())["routers"]
    others = {other: entry["inter"] for other, entry in entries.items() if other != name}
    contacts = {other: not blind and sees(inter) for other, inter in others.items()}
    return {
        "router": name,
        "mesh": "stub",
        "incarnation": 1,
        "pid": os.getpid(),
        "state": "ready" if all(contacts.values()) else "booting",
        "waiting_for": [other for other, contact in contacts.items() if not contact],
        "uptime_s": 1.5,
        "rss_bytes": 1 << 20,
        "connections": 1,
        "plan": {"digest": "1", "routers": dict.fromkeys(sorted(entries), "member")},
        "links": [{"neighbour": other, "up": up, "cost": 1, "since_s": 1.0} for other, up in contacts.items()],
        "routes": [
            {"router": other, "next_hop": other, "cost": 1, "contact": contact} for other, contact in contacts.items()
        ],
        "publishers": [],
        "subscribers": [],
        "orphans": [],
        "lapsed": [],
        "untold": [],
        "attaches": {"waiting": 0, "for": [], "since_s": 0.0},
        "records": {"placeholder": 0, "unconfirmed": 0, "in_doubt": 0, "accepted": 0, "settled": 0},
        "waits": [],
        "disk": {"log": "", "missing": 0, "store": ""},
    }


def end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("topology", type=Path)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--fd", nargs=2, action="append")
    parser.add_argument("--clock-offset", type=float)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--join", action="store_true")
    arguments = parser.parse_args()
    inherited = {listener: int(number) for listener, number in arguments.fd}
    assert arguments.topology.exists()
    behaviour = arguments.run_dir / arguments.name / "behaviour"
    how = behaviour.read_text() if behaviour.exists() else ""
    if how == "fail":
        sys.exit("the reason\nwhy it failed")
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN if how == "stubborn" else end)
    inter = socket.socket(fileno=inherited["inter"])
    assert inter.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    clients = socket.socket(fileno=inherited["amqp"])
    while True:
        connection, _ = clients.accept()
        with connection:
            connection.sendall(json.dumps(status(arguments.name, arguments.run_dir, how == "blind")).encode())


main()
