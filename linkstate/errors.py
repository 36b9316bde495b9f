"""The one error that is a neighbour's fault: a body that does not decode, or a HELLO from the wrong router.

The shell closes the transport it came from. Everything else that raises in this folder is a bug of ours.
"""


class PeerError(Exception):
    """A neighbour sent what no router of this mesh would send; nothing of it was applied."""
