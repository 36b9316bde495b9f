"""The one error of the topic core that is a peer's fault; everything else that it raises is a bug of ours."""


class BreachError(Exception):
    """A peer router sent what the protocol does not allow; its contact is dropped and nothing of it is applied."""
