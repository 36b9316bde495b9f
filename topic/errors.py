"""The errors of the topic core that do not show a bug in this project."""


class BreachError(Exception):
    """Another router broke the protocol. The router that raises this drops the contact, and ignores the rest of the
    batch."""


class UnkeptError(Exception):
    """The store cannot be written at present. The text names the file and the reason. The store's former content is
    unchanged."""
