"""Reads the outcomes in transactional states, which proton does not read (AMQP 1.0 4.5.8)."""

from typing import Any, Final

from router.amqp.format.codec import Described, encode
from router.amqp.format.message import annotations_to_add
from router.amqp.format.values import ACCEPTED, MODIFIED, REJECTED, RELEASED, OutcomeDetails

_NAMES: Final = {
    "amqp:accepted:list": ACCEPTED,
    "amqp:rejected:list": REJECTED,
    "amqp:released:list": RELEASED,
    "amqp:modified:list": MODIFIED,
}
_ERROR: Final = (0x1D, "amqp:error:list")
"""The descriptors of an error."""


def outcome_of(value: Any) -> OutcomeDetails:
    """The outcome that a decoded value describes. If the value describes none, the result has no state."""
    if not isinstance(value, Described) or not isinstance(value.value, list):
        return OutcomeDetails()
    code = _NAMES.get(value.descriptor, value.descriptor) if isinstance(value.descriptor, str) else value.descriptor
    if not isinstance(code, int) or code not in _NAMES.values():
        return OutcomeDetails()
    if code == REJECTED:
        return _rejected(value.value)
    if code != MODIFIED:
        return OutcomeDetails(state=code)
    failed, undeliverable, annotations = (*value.value, None, None, None)[:3]
    added = annotations_to_add(encode(annotations)) if isinstance(annotations, dict) else b""
    return OutcomeDetails(state=MODIFIED, failed=failed is True, undeliverable=undeliverable is True, annotations=added)


def _rejected(fields: list[Any]) -> OutcomeDetails:
    """A *rejected* with these fields. A malformed error counts as none."""
    error = fields[0] if fields else None
    if not isinstance(error, Described) or error.descriptor not in _ERROR or not isinstance(error.value, list):
        return OutcomeDetails(state=REJECTED)
    condition, description = (*error.value, None, None)[:2]
    if not isinstance(condition, str):
        return OutcomeDetails(state=REJECTED)
    return OutcomeDetails(REJECTED, str(condition), description if isinstance(description, str) else "")
