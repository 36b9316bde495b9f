"""Times and sizes that a replica keeps to."""

import attrs


@attrs.frozen(slots=True, kw_only=True)
class RaftLimits:
    """Times in seconds, sizes in bytes."""

    election: float = 0.5
    """An election that nobody wins is tried again after one to two of these."""
    place: float = 0.1
    """How much later than the voter before it in the ring a voter first stands when it has lost its leader."""
    boot: float = 2.0
    """How long a replica that starts waits for contact with all voters before it stands."""
    dead: float = 1.0
    """A disk whose oldest write lasts longer hangs; a transfer that lasts longer has failed."""
    told: float = 0.0
    """How long a follower may wait for entries that tell it what is decided, before it is told without; 0: at once."""
    tried: float = 10.0
    """How long a request is tried at leaders before it is answered with an error."""
    window: int = 1 << 20
    """How much may be on its way to a follower's disk."""
    unstored: int = 8 << 20
    """How much of a leader's log may wait for a majority, or for its own disk."""
