"""The limits of a replica in time and size."""

import attrs


@attrs.frozen(slots=True, kw_only=True)
class RaftLimits:
    """The limits of a replica. Times are in seconds, sizes in bytes."""

    election: float = 0.5
    """The time after which a voter stands again if no candidate has won an election. The voter adds up to the same time
    again, at random."""
    place: float = 0.1
    """When several voters have lost their leader, each waits this much longer than the voter before it in the ring."""
    boot: float = 2.0
    """The time for which a replica that starts waits for contact with all voters, before it stands for election."""
    dead: float = 1.0
    """If the oldest write of a disk takes longer than this, the disk counts as hanging. If a change of leadership takes
    longer, it has failed."""
    told: float = 0.0
    """The time for which a leader waits for new entries, before it tells a follower the commit index without entries.
    With 0 the leader does not wait."""
    tried: float = 10.0
    """The seconds for which a router tries to bring a request to a leader. Then it answers the request with an
    error."""
    window: int = 1 << 20
    """The highest number of bytes of entries that are under way to a follower's disk."""
    unstored: int = 8 << 20
    """The highest number of bytes of a leader's entries that wait for a majority, or for the leader's own disk."""
