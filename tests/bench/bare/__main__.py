"""Starts the bare line, or one bare router.

python -m tests.bench.bare line      prints {"a": {"amqp": "127.0.0.1:PORT", "pid": N}, ...}, runs until stdin ends
python -m tests.bench.bare single
"""

import json
import subprocess
import sys

import trio

from tests.bench.bare.router import Router
from tests.bench.bare.wires import relay


def start(role: str, *ports: int) -> tuple[subprocess.Popen[str], list[int]]:
    command = [sys.executable, "-m", "tests.bench.bare", role, *map(str, ports)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def main() -> None:
    role, *ports = sys.argv[1:]
    if role == "relay":
        trio.run(relay, *map(int, ports))
    elif role in ("alone", "home", "edge"):
        trio.run(Router(role).run)
    else:
        started = {"a": start("alone")} if role == "single" else {"a": start("home"), "c": start("edge")}
        if role == "line":
            started["b"] = start("relay", started["a"][1][1], started["c"][1][1])
        told = {n: {"amqp": f"127.0.0.1:{at[0]}" if at else "", "pid": p.pid} for n, (p, at) in sorted(started.items())}
        print(json.dumps(told), flush=True)
        sys.stdin.read()
        for process, _ in started.values():
            process.kill()


if __name__ == "__main__":
    main()
