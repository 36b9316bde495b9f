"""Breakages of wills (protocol 15)."""

from router.amqp.driven import DrivenConnection
from tests.mutants.mutant import Method, mutant
from tests.router.mqtt.test_wills import (
    test_a_connect_that_is_read_late_ends_no_will as read_late,
)
from tests.router.mqtt.test_wills import (
    test_a_will_that_its_router_was_publishing_comes_once as comes_once,
)
from tests.router.mqtt.test_wills import (
    test_a_will_that_was_published_is_not_published_by_one_that_has_not_heard as has_not_heard,
)
from topic.ends.publishing import AFRESH
from topic.wills.publisher import WillPublisher
from topic.wills.wills import Wills


@mutant(WillPublisher, "claim_of", by="1", scenario=comes_once)
def published_afresh(original: Method) -> Method:
    """Wills: a will has the same key at all routers."""

    def broken(publisher: WillPublisher, again: bool) -> object:
        return AFRESH

    return broken


@mutant(Wills, "_on_ask", by="1", scenario=has_not_heard)
def endings_not_told(original: Method) -> Method:
    """Wills: a router that is asked tells that the will is over."""

    def broken(wills: Wills, router: str, id_: object, now: float) -> None:
        over, wills._over = wills._over, {}
        original(wills, router, id_, now)
        wills._over = over

    return broken


@mutant(DrivenConnection, "prove", by="1", scenario=read_late)
def late_connect_believed(original: Method) -> Method:
    """Wills: an earlier will of a client ends when it is certain that the client is elsewhere."""

    def broken(connection: DrivenConnection, told: Method) -> None:
        told()

    return broken
