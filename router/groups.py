"""What is in an exception group, however deep."""

from collections.abc import Iterator


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors themselves; of one that is no group, just that."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error
