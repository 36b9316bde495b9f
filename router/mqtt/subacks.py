"""SUBACKs that wait: each is said when all routers in contact know of its subscriptions (docs/mqtt.md)."""

from collections.abc import Callable

from attrs import define

from router.mqtt.ends import MqttEnd


@define(eq=False)
class WaitingSuback:
    identifier: int
    reasons: list[int]
    left: int = 1
    """Subscriptions that do not hold yet, and one while not all are asked for."""


class Subacks:
    """Of one session, by the ends that they wait for."""

    def __init__(self, say: Callable[[WaitingSuback], None]) -> None:
        self._say = say
        self._of: dict[MqttEnd, list[WaitingSuback]] = {}

    def wait(self, end: MqttEnd, waiting: WaitingSuback) -> None:
        waiting.left += 1
        self._of.setdefault(end, []).append(waiting)

    def hand_over(self, end: MqttEnd, successor: MqttEnd) -> None:
        """What waits for one waits for the other."""
        self._of[successor] = self._of.pop(end, [])

    def answered(self, end: MqttEnd) -> None:
        """It holds, or is over."""
        for waiting in self._of.pop(end, ()):
            self.less(waiting)

    def less(self, waiting: WaitingSuback) -> None:
        waiting.left -= 1
        if not waiting.left:
            self._say(waiting)

    def clear(self) -> None:
        self._of.clear()
