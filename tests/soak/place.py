"""Where a client of a soak attaches and who it is; its load is `failover.chaos.load`."""

import time
from collections.abc import Callable
from pathlib import Path

import attrs

from failover.client import Connected, Event, Publisher, Subscriber
from failover.client.endpoint import Options
from failover.client.store import Store
from tests.soak.accounts import Attachment
from topic.identity import LinkIdentity

LINK = "soak"


@attrs.frozen
class Place:
    """Who a client is and where it attaches: first at the router where it belongs, then at others."""

    name: str
    urls: tuple[str, ...]
    address: str
    log: Path

    @property
    def identity(self) -> LinkIdentity:
        return LinkIdentity(self.name, LINK, self.address)

    def options(self, store: Store | None, attached: Callable[[Attachment], object]) -> Options:
        def listen(event: Event) -> None:
            if isinstance(event, Connected):
                attached(Attachment(event.router, time.monotonic()))

        return {"log": self.log, "store": store, "events": listen}

    def publisher(self, store: Store | None, attached: Callable[[Attachment], object]) -> Publisher:
        return Publisher(self.urls, self.address, container=self.name, link=LINK, **self.options(store, attached))

    def subscriber(self, store: Store | None, attached: Callable[[Attachment], object]) -> Subscriber:
        return Subscriber(self.urls, self.address, container=self.name, link=LINK, **self.options(store, attached))
