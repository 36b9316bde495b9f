"""The times and sizes that limit a replica."""

import attrs


@attrs.frozen(slots=True, kw_only=True)
class RaftLimits:
    """The limits. Times are in seconds, sizes in bytes."""

    election: float = 0.5
    """If no candidate wins an election, a voter stands again after one to two times this."""
    place: float = 0.1
    """The delay with which a voter stands after the voter before it in the ring, when both have lost their leader."""
    boot: float = 2.0
    """How long a replica that starts waits for contact with all voters before it stands."""
    dead: float = 1.0
    """A disk hangs if its oldest write lasts longer. A transfer of leadership has failed if it lasts longer."""
    told: float = 0.0
    """How long a follower waits for entries that also tell it the commit index. Then a message without entries tells
    it. 0: it is told at once."""
    tried: float = 10.0
    """How long a router sends a request to leaders before it answers the request with an error."""
    window: int = 1 << 20
    """Most bytes of entries that are under way to a follower's disk."""
    unstored: int = 8 << 20
    """Most bytes of a leader's entries that wait for a majority or for its own disk."""
