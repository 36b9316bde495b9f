"""The limits of a replica in time and size."""

import attrs


@attrs.frozen(slots=True, kw_only=True)
class RaftLimits:
    """The limits of a replica. Times are in seconds, sizes in bytes."""

    election: float = 0.5
    """If no candidate wins an election, a voter stands again after this time, or after up to twice this time."""
    place: float = 0.1
    """When several voters have lost their leader, each waits longer by this time than the voter before it in the
    ring."""
    boot: float = 2.0
    """A replica that starts waits this long for contact with all voters before it stands for election."""
    dead: float = 1.0
    """A disk counts as hanging if its oldest write takes longer than this. A change of leadership has failed if it
    takes longer."""
    told: float = 0.0
    """How long a leader waits for new entries before it tells a follower the commit index without entries. With 0 the
    leader does not wait."""
    tried: float = 10.0
    """How long a router sends a request to leaders. After this time it answers the request with an error."""
    window: int = 1 << 20
    """The limit of the bytes of entries that are under way to a follower's disk."""
    unstored: int = 8 << 20
    """The limit of the bytes of a leader's entries that wait for a majority, or for the leader's own disk."""
