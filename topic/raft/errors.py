"""The errors with which a replica refuses a request."""

from topic.raft.configuration import Replica


class NotLeaderError(Exception):
    """This replica does not lead. `leader`: the member that leads; None if this replica does not know it."""

    def __init__(self, why: str, leader: Replica | None) -> None:
        super().__init__(why)
        self.leader = leader


class BusyError(Exception):
    """The set takes no entry at present, because too many bytes wait for the disks, or another change is under way."""


class NotReadyError(Exception):
    """The set cannot begin. The text of the error gives the reason."""
