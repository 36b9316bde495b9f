"""Errors of a replica that refuses a request."""

from topic.raft.configuration import Replica


class NotLeaderError(Exception):
    """This replica does not lead. `leader`: the member that does, if the replica knows one."""

    def __init__(self, why: str, leader: Replica | None) -> None:
        super().__init__(why)
        self.leader = leader


class BusyError(Exception):
    """The set takes no entry at present: too many bytes wait for the disks, or another change is under way."""


class NotReadyError(Exception):
    """A set cannot begin. The text gives the reason."""
