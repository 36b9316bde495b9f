"""The errors of the topic core that are no bug of ours."""


class BreachError(Exception):
    """A router sent what the protocol does not allow. Its contact is dropped, and nothing of the batch is applied after
    that."""


class UnkeptError(Exception):
    """The store cannot be written just now, with the file and the reason. What it had before is as it was."""
