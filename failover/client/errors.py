"""What goes wrong between a client and its router, or its state."""


class ClientError(ConnectionError):
    """The link is gone, or was never granted: AMQP's condition and description, if the router gave any."""

    def __init__(self, condition: str | None, description: str = "") -> None:
        text = condition or "the connection was lost"
        super().__init__(f"{text}: {description}" if description else text)
        self.condition = condition
        self.description = description


class StateError(ClientError):
    """The client's state cannot be read or kept: where, and why. It does not go on without."""

    def __init__(self, where: str, reason: str) -> None:
        ConnectionError.__init__(self, f"{where}: {reason}")
        self.condition = None
        self.description = reason
