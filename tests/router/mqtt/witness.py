"""Sees all messages of a walk of MQTT clients, and reports them to the walk's judge."""

from typing import TYPE_CHECKING

from router.amqp.batches import Transfers
from router.amqp.format.message import body_of
from router.amqp.format.values import ACCEPTED, AttachOptions
from router.amqp.proton.link import Link
from tests.fuzz.mesh import LONGEST_S, GoodClient
from tests.router.mqtt.sessions import TOPICS

if TYPE_CHECKING:
    from tests.router.mqtt.walk import MqttWalk


class Witness(GoodClient):
    """An AMQP subscriber at a router that is never killed. It is plain, except where contacts are lost."""

    def __init__(self, walk: "MqttWalk", credit: int) -> None:
        super().__init__(walk.routers["w"], "witness")
        self._walk = walk
        self._spent: dict[Link, int] = {}
        self.router.guests.append(self)
        asks = AttachOptions(rcv_settle_mode=1)
        if walk.parts:
            asks |= {"expiry_policy": "connection-close", "timeout": LONGEST_S}
        for topic in TOPICS:
            self.engine.receiver(f"hears {topic}", topic, **asks).flow(credit)

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        for message in transfers.messages:
            self._walk.judge.witnessed(int(body_of(message)))
        link.update_many([handle for handle in transfers.handles if handle is not None], ACCEPTED)
        self._spent[link] = self._spent.get(link, 0) + len(transfers.handles)
        if not self._walk.is_scarce:
            self.grant()

    def grant(self) -> bool:
        """Renew the credit that messages have used. Returns whether there was any."""
        spent, self._spent = self._spent, {}
        for link, count in spent.items():
            link.flow(count)
        return bool(spent)
