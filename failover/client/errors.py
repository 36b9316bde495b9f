"""The errors that a client raises: about its link and its router, and about its own stored state."""

import os
import ssl


class ClientError(ConnectionError):
    """The link is lost, or no router has granted it. The error has the condition and the description that the router
    gave, if it gave any."""

    def __init__(self, condition: str | None, description: str = "") -> None:
        text = condition or "the connection was lost"
        super().__init__(f"{text}: {description}" if description else text)
        self.condition = condition
        self.description = description


class MovingError(ClientError):
    """The router asks its client to move to another router; nothing is wrong."""

    def __init__(self) -> None:
        ConnectionError.__init__(self, "the router asked this client to move to another router")
        self.condition = None
        self.description = str(self)


class StateError(ClientError):
    """The client's state cannot be read or stored, so the client stops. The text names the file or table, and the
    reason."""

    def __init__(self, where: str, reason: str) -> None:
        ConnectionError.__init__(self, f"{where}: {reason}")
        self.condition = None
        self.description = reason


def why_unreachable(reason: Exception) -> str:
    """Return in words why the client could not connect to a host: one cause for each address of the host. The error of
    trio itself says only that all addresses have failed."""
    errors = reason.__cause__.exceptions if isinstance(reason.__cause__, ExceptionGroup) else (reason,)
    numbers = [error.errno for error in errors if isinstance(error, OSError) and not isinstance(error, ssl.SSLError)]
    causes = dict.fromkeys(os.strerror(number) for number in numbers if number is not None and number > 0)
    return ", ".join(causes) or (isinstance(reason, OSError) and reason.strerror) or str(reason) or "no answer in time"
