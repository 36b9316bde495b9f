"""The one error of the topic core that is another router's fault. Everything else that it raises is a bug of ours."""


class BreachError(Exception):
    """A router sent what the protocol does not allow. Its contact is dropped, and nothing of the batch is applied after
    that."""
