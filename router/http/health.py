"""Tells an orchestrator or a load balancer whether a router lives, and whether the router is ready for clients.

A router is *healthy* if its loop is less than `dead` late: if the loop lags by more, the neighbours lose the router. A
router whose loop stands still does not answer at all; the watchdog ends this router (`router.watchdog`).

A router is *ready* if it answers publishers and lets clients in: it has heard from all routers, or has waited for them
as long as it has to (protocol 8, Boot), and is neither joining nor leaving. A router that loses contacts later stays
ready: each side of a partition continues (protocol 8, Partition), and a load balancer must not remove the last router.
"""

from collections.abc import Callable

from router.entities.observed import LoopLag
from router.http.exchange import WebAnswer, WebCaller, WebRequest, text_answer


class HealthPages:
    def __init__(self, lag: LoopLag, dead: float, unready: Callable[[], str]) -> None:
        """`unready`: returns the reason for which clients should use another router; an empty text if there is none."""
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
