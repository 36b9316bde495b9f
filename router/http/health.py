"""Whether a router lives, and whether it is ready for clients: what an orchestrator or a load balancer asks.

*Healthy* is a process whose loop comes round in time: one whose loop lags by `dead` or more is lost to its neighbours.
A loop that stands still does not answer at all, and is ended by the watch over it (`router.watchdog`).

*Ready* is a router that answers publishers and lets clients in: it has heard of all routers, or has waited for them as
long as it is to (protocol 8, Boot), and is neither joining nor on its way out. Whom it loses afterwards does not make
it less ready: each side of a cut goes on (protocol 8, Partition), and the last router that is left must not be taken
out.
"""

from collections.abc import Callable

from router.entities.observed import LoopLag
from router.http.exchange import WebAnswer, WebCaller, WebRequest, told


class HealthPages:
    def __init__(self, lag: LoopLag, dead: float, unready: Callable[[], str]) -> None:
        """`unready`: why clients had better go elsewhere; empty if they need not."""
        self._lag = lag
        self._dead = dead
        self._unready = unready

    async def live(self, request: WebRequest, caller: WebCaller) -> WebAnswer:
        lag = self._lag.most
        if lag >= self._dead:
            return told(503, f"the event loop is {lag:.3f} s late, expected less than {self._dead:g} s")
        return told(200, "ok")

    async def ready(self, request: WebRequest, caller: WebCaller) -> WebAnswer:
        why = self._unready()
        return told(503, why) if why else told(200, "ready")
