"""What goes wrong between a client and its router, or its state."""

import os
import ssl


class ClientError(ConnectionError):
    """The link is gone, or was never granted: AMQP's condition and description, if the router gave any."""

    def __init__(self, condition: str | None, description: str = "") -> None:
        text = condition or "the connection was lost"
        super().__init__(f"{text}: {description}" if description else text)
        self.condition = condition
        self.description = description


class MovingError(ClientError):
    """Nothing is wrong: the router asks its client to go to another one."""

    def __init__(self) -> None:
        ConnectionError.__init__(self, "the router asked this client to move to another router")
        self.condition = None
        self.description = str(self)


class StateError(ClientError):
    """The client's state cannot be read or kept: where, and why. It does not go on without."""

    def __init__(self, where: str, reason: str) -> None:
        ConnectionError.__init__(self, f"{where}: {reason}")
        self.condition = None
        self.description = reason


def why_unreachable(reason: Exception) -> str:
    """Of a host's addresses trio says no more than that all failed; each has a cause of its own."""
    errors = reason.__cause__.exceptions if isinstance(reason.__cause__, ExceptionGroup) else (reason,)
    numbers = [error.errno for error in errors if isinstance(error, OSError) and not isinstance(error, ssl.SSLError)]
    causes = dict.fromkeys(os.strerror(number) for number in numbers if number is not None and number > 0)
    return ", ".join(causes) or (isinstance(reason, OSError) and reason.strerror) or str(reason) or "no answer in time"
