"""Requests and answers of AMQP Management (working draft 9, chapter 3), as messages.

`read_request` reads only the reply address; the operation reads the rest later. So even a malformed request gets an
answer, if its reply address can be read. `agent` has the operations.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from attrs import frozen

from router.amqp.format.codec import Described, Raw, encode, ulong
from router.amqp.format.errors import INVALID_FIELD, AmqpError
from router.amqp.format.sections import read_message

OK: Final = 200
CREATED: Final = 201
NO_CONTENT: Final = 204
GOOD: Final = {OK: "OK", CREATED: "Created", NO_CONTENT: "No Content"}
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
NOT_IMPLEMENTED: Final = 501
UNAVAILABLE: Final = 503
TIMEOUT: Final = 504
LONGEST_DESCRIPTION: Final = 2000
MOST_DIGITS: Final = 20
"""The highest number of digits of a number that comes as a text."""

_PROPERTIES: Final = 0x73
_APPLICATION_PROPERTIES: Final = 0x74
_VALUE: Final = 0x77


class ManagementError(Exception):
    """A failure of a request, with the status code and description of the answer."""

    def __init__(self, status: int, description: str) -> None:
        super().__init__(description[:LONGEST_DESCRIPTION])
        self.status = status


@frozen
class Request:
    reply_to: str
    correlation: Any
    """The correlation-id of the answer, encoded."""
    asked: Mapping[str, Any]
    """The application properties of the request."""
    body: Any

    @property
    def operation(self) -> str:
        """The name of the operation in capitals. Raises ManagementError, as every method here does."""
        operation = self.text("operation")
        if operation is None:
            raise ManagementError(BAD_REQUEST, "the application properties have no operation")
        return operation.upper()

    def text(self, name: str) -> str | None:
        """An application property; None if the request has no such property."""
        value = self.asked.get(name)
        if value is not None and not isinstance(value, str):
            raise ManagementError(BAD_REQUEST, f"{name} is {value!r}, expected a text")
        return value

    def number(self, name: str, default: int, most: int = 2**32 - 1) -> int:
        """The number in an application property; `default` if the request has no such property. It may be a text of
        digits, because tools on a command line send one."""
        said = self.asked.get(name)
        value = default if said is None else said
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= MOST_DIGITS:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ManagementError(BAD_REQUEST, f"{name} is {said!r}, expected a number from 0 to {most}")
        return value

    def attribute_names(self) -> list[str]:
        """The attributes that a QUERY asks for; empty if it asks for all."""
        names = self.body.get("attributeNames") if isinstance(self.body, dict) else None
        if names is None:
            return []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ManagementError(BAD_REQUEST, f"attributeNames in the body is {names!r}, expected a list of texts")
        return names


def read_request(message: bytes) -> Request:
    """Read a request. Raises AmqpError if it is no message, or has no reply address."""
    sections = read_message(message)
    properties = sections.get("properties", {})
    reply_to = properties.get("reply-to")
    if not isinstance(reply_to, str):
        raise AmqpError(INVALID_FIELD, "the request has no reply-to")
    asked = sections.get("application-properties")
    named = properties.get("correlation-id", properties.get("message-id"))
    return Request(reply_to, _identifier(named), asked if isinstance(asked, dict) else {}, sections.get("value"))


def _identifier(value: Any) -> Any:
    """The identifier, if its type is right: text, binary, ulong or UUID (AMQP 1.0 3.2.11 to 3.2.14). Otherwise raises
    AmqpError."""
    match value:
        case None | str() | bytes():
            return value
        case UUID():
            return Raw(b"\x98" + value.bytes)
        case int() if 0 <= value < 2**64:
            return ulong(value)
    raise AmqpError(
        INVALID_FIELD, "the message-id or correlation-id of the request has a type that AMQP does not allow"
    )


def answer_message(request: Request, status: int, description: str, body: Any) -> bytes:
    properties = [None, None, request.reply_to, None, None, request.correlation]
    told = {"statusCode": Raw(b"\x71" + status.to_bytes(4, "big")), "statusDescription": description}
    sections = (_PROPERTIES, properties), (_APPLICATION_PROPERTIES, told), (_VALUE, body)
    return b"".join(encode(Described(code, value)) for code, value in sections)


def error_message(request: Request, error: ManagementError) -> bytes:
    return answer_message(request, error.status, str(error), {})
