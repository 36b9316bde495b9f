"""Finds the errors in an exception group, however deep."""

from collections.abc import Iterator


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group; an error that is no group yields itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error
