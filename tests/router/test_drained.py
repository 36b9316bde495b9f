"""A drain that is answered while another message is on its way to the consumer (AMQP 1.0 2.6.7; protocol 14.15)."""

from router.amqp.format.message import data_message
from tests.fuzz.queues import QUEUES, QueueMesh


def test_a_message_behind_the_answer_to_a_drain_is_delivered() -> None:
    """The router of the consumer reads the leader's answer and the next message in one turn."""
    mesh = QueueMesh("a", "b", "c")
    reader, writer = mesh._good("c", "drains"), mesh._good("a", "writes on")
    receiver = reader.engine.receiver("drains", QUEUES[0])
    sender = writer.engine.sender("writes", QUEUES[0])
    mesh.flow()

    def work_apart() -> None:
        """Let all go on but for what the leader says to the router of the consumer."""
        while mesh.work() or any(wire for wire in mesh.wires if wire != ("a", "c") and mesh.wires[wire]):
            for wire in mesh.wires:
                if wire != ("a", "c"):
                    mesh.bring(*wire)

    receiver.drain(5)
    work_apart()
    sender.send(b"0", data_message(b"0"))
    work_apart()
    mesh.flow()
    assert reader.numbers == [0]
    mesh.end()
