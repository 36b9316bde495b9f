"""Damaged files: delivery logs, for which the audit still makes a report, and YAML, whose errors are reported."""

import json
import tempfile
import zlib
from functools import cache
from pathlib import Path
from random import Random

import msgpack

from failover.audit import Verdict
from failover.chaos.script.reader import ScriptError
from failover.chaos.script.reader import load as load_script
from router.mesh.topology import TopologyError
from router.mesh.topology import load as load_topology
from tests.failover.audit.in_process import judge_files
from tests.failover.audit.runs import ROUTERS, Run
from tests.fuzz.mutation import altered, damaged
from topic.blocks import read_blocks
from topic.journal import HEADER_LENGTH, MAGIC

TOPOLOGIES = Path(__file__).parents[2] / "topologies"


@cache
def _good_logs() -> dict[str, bytes]:
    return {f"file:/run/{name}": data for name, data in Run().files()}


def logs(rng: Random) -> None:
    """Damage the bytes of segments; the audit has to report damage. A block with a wrong checksum does not count. A
    well-formed block with changed content is read; its content is not judged here."""
    files = dict(_good_logs())
    for path in rng.sample(sorted(files), rng.randint(1, 2)):
        _list_entries(_forged(rng, files[path]))
        files[path] = damaged(rng, files[path])
    mesh = json.dumps({"mesh": "line", "routers": {router: {"pid": 1} for router in ROUTERS}}).encode()
    files["file:/run/mesh.json"] = damaged(rng, mesh) if rng.random() < 0.05 else mesh
    report = judge_files(files)
    json.dumps(report.as_json())
    assert report.verdict is not Verdict.VIOLATED, "what is damaged is taken for a violation"


def _list_entries(segment: bytes) -> None:
    blocks, _ = read_blocks(segment)
    for block in blocks:
        assert len(list(block.entries())) == len(block.columns["event"])


def _forged(rng: Random, segment: bytes) -> bytes:
    """The segment with the content of one block changed."""
    starts = [at for at in range(len(segment)) if segment.startswith(MAGIC, at)]
    if not starts:
        return damaged(rng, segment)
    start = rng.choice(starts)
    end = start + HEADER_LENGTH + int.from_bytes(segment[start + 4 : start + 8], "big")
    payload: bytes = msgpack.packb(altered(rng, msgpack.unpackb(segment[start + HEADER_LENGTH : end])))
    header = MAGIC + len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big")
    return segment[:start] + header + payload + segment[end:]


@cache
def _good_texts() -> dict[str, bytes]:
    paths = sorted(TOPOLOGIES.glob("**/*.yaml"))
    return {str(path.relative_to(TOPOLOGIES)): path.read_bytes() for path in paths}


def yaml(rng: Random) -> None:
    """A topology or a chaos script with changed bytes, or with words of the other texts."""
    texts = _good_texts()
    name = rng.choice(sorted(texts))
    text = damaged(rng, texts[name]) if rng.random() < 0.5 else _reworded(rng, texts[name], [*texts.values()])
    with tempfile.TemporaryDirectory() as folder:
        for other, content in texts.items():
            path = Path(folder) / other
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text if other == name else content)
        for load, error in ((load_topology, TopologyError), (load_script, (ScriptError, TopologyError))):
            try:
                load(Path(folder) / name)
            except error as told:
                assert all(line.isprintable() for line in str(told).splitlines()), "it would reach the terminal"


def _reworded(rng: Random, text: bytes, others: list[bytes]) -> bytes:
    words = text.split(b" ")
    for _ in range(rng.randint(1, 5)):
        words[rng.randrange(len(words))] = rng.choice(rng.choice(others).split(b" "))
    return b" ".join(words)
