"""Why a replica does not take what it is asked for."""

from topic.raft.configuration import Replica


class NotLeaderError(Exception):
    """This replica cannot decide. `leader` is the member that can, if one is known."""

    def __init__(self, why: str, leader: Replica | None) -> None:
        super().__init__(why)
        self.leader = leader


class BusyError(Exception):
    """The set takes no more for now: too much is on its way to the disks, or another change is under way."""


class NotReadyError(Exception):
    """A set cannot begin: the text says why."""
