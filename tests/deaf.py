"""A shell that ignores all outputs of a node, except the topics' (`topic.node.NodeShell`)."""

from topic.errors import BreachError


class Deaf:
    __slots__ = ()

    def receive_from_shell(self, router: str, payload: bytes) -> None:
        raise BreachError("nothing is said beside the topics")
