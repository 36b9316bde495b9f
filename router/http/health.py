"""Whether a router lives, and whether it is ready for clients, for an orchestrator or a load balancer.

*Healthy* is a process whose loop is in time: its neighbours lose a router whose loop lags by `dead` or more. A loop
that stands still does not answer at all; the watchdog ends it (`router.watchdog`).

*Ready* is a router that answers publishers and lets clients in: it has heard from all routers, or has waited for them
as long as it has to (protocol 8, Boot), and is neither joining nor leaving. A router that loses contacts later stays
ready: each side of a partition continues (protocol 8, Partition), and a load balancer must not remove the last router.
"""

from collections.abc import Callable

from router.entities.observed import LoopLag
from router.http.exchange import WebAnswer, WebCaller, WebRequest, text_answer


class HealthPages:
    def __init__(self, lag: LoopLag, dead: float, unready: Callable[[], str]) -> None:
        """`unready`: the reason for which clients should use another router; empty if there is none."""
        self._lag = lag
        self._dead = dead
        self._unready = unready

    async def live(self, request: WebRequest, caller: WebCaller) -> WebAnswer:
        lag = self._lag.most
        if lag >= self._dead:
            return text_answer(503, f"the event loop is {lag:.3f} s late, expected less than {self._dead:g} s")
        return text_answer(200, "ok")

    async def ready(self, request: WebRequest, caller: WebCaller) -> WebAnswer:
        why = self._unready()
        return text_answer(503, why) if why else text_answer(200, "ready")
