"""Finds the errors in an exception group, however deep."""

from collections.abc import Iterator


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield all errors in a group. An error that is no group yields only itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error
