"""rhea reads our unsettled maps and writes its own: the frame tap against another maker's codec."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import trio

from router.amqp.batches import Transfers
from router.amqp.connection import Connection
from router.amqp.format.message import data_message
from router.amqp.format.values import ACCEPTED, NO_STATE, DeliveryState
from router.amqp.proton.link import Link
from router.amqp.transport import serve
from tests.hangs import HANGS_S
from tests.router.amqp.pair import Recorder

HERE = Path(__file__).parent
NODE = shutil.which("node")


class Edge(Recorder):
    def on_attach(self, link: Link) -> None:
        super().on_attach(link)
        link.answer(unsettled={b"known": ACCEPTED, b"doubtful": NO_STATE})
        if not link.is_sender:
            link.flow(10)

    def on_credit(self, link: Link) -> None:
        if not self.credits:
            link.send(b"doubtful", data_message(b"again"), resume=True)
        super().on_credit(link)

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        super().on_transfers(link, transfers)
        link.update_many(transfers.handles, ACCEPTED, settle=True)


@pytest.mark.skipif(NODE is None or not (HERE / "node_modules").exists(), reason="rhea needs node (make setup)")
async def test_rhea_and_we_read_the_maps_of_each_other(nursery: trio.Nursery) -> None:
    edge = Edge()
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def take(stream: trio.SocketStream) -> None:
        await serve(stream, Connection(edge, container="mesh", server=True))

    nursery.start_soon(trio.serve_listeners, take, listeners)
    port = listeners[0].socket.getsockname()[1]
    with trio.fail_after(HANGS_S):
        command = [str(NODE), str(HERE / "rhea_maps.js"), f"127.0.0.1:{port}"]
        done = await trio.run_process(command, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode()
    told = [json.loads(line) for line in done.stdout.splitlines()]
    ours = {"known": ACCEPTED, "doubtful": NO_STATE}
    assert [what["event"] for what in told] == ["attached", "attached", "message", "done"]
    assert all(what["unsettled"] == ours and not what["incomplete"] for what in told[:2])
    assert told[2] == {"event": "message", "tag": "doubtful", "body": "again"}
    theirs = {b"known": DeliveryState(ACCEPTED), b"doubtful": DeliveryState(NO_STATE)}
    assert [link.remote_unsettled for link in edge.attached] == [theirs, theirs]
    assert edge.tags == [b"fresh"]
    nursery.cancel_scope.cancel()
