"""The decorator that marks the handlers of events. `topic.core` has the handlers."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from topic.home.home import Home


class HasHome(Protocol):
    """The part of a router's core that the decorator needs."""

    home: Home


T = TypeVar("T", bound=HasHome)
P = ParamSpec("P")
R = TypeVar("R")


def event(handler: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Decorate the handler of an event. When the handler returns, withheld deliveries whose keys have become free go
    on."""

    @wraps(handler)
    def handled(core: T, /, *arguments: P.args, **options: P.kwargs) -> R:
        result = handler(core, *arguments, **options)
        core.home.publishing.release_freed()
        return result

    return handled
