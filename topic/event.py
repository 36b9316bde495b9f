"""The common end of the handling of every event. `topic.core` has the handlers."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from topic.home.home import Home


class HasHome(Protocol):
    """The core of one router, as far as this is concerned."""

    home: Home


T = TypeVar("T", bound=HasHome)
P = ParamSpec("P")
R = TypeVar("R")


def event(handler: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Marks the handler of an event: at its end, what waited for keys that are free now goes on."""

    @wraps(handler)
    def handled(core: T, /, *arguments: P.args, **options: P.kwargs) -> R:
        result = handler(core, *arguments, **options)
        core.home.publishing.release_freed()
        return result

    return handled
