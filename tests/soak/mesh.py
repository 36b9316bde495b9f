"""The meshes of a soak: those of `topologies/` on free ports, with a proxy on every link where links are to be cut."""

import contextlib
from functools import partial
from pathlib import Path

import attrs
import trio
import yaml

from failover.chaos.proxy import LinkProxy
from tests.processes.mesh import RunningMesh


@attrs.frozen
class Seats:
    """At which routers the clients begin. The first of each are what is struck: the home, the custodian."""

    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]


SEATS = {
    "triangle": Seats(publishers=("a", "a", "b"), subscribers=("c", "c", "b", "a")),
    "mesh6": Seats(publishers=("a", "a", "d"), subscribers=("f", "f", "c", "a")),
}


class SoakMesh(RunningMesh):
    def __init__(self, topology: str, directory: Path) -> None:
        super().__init__(topology, directory, {})
        self.seats = SEATS[topology]
        self.proxies: dict[tuple[str, str], LinkProxy] = {}

    async def set_proxies(self, nursery: trio.Nursery) -> None:
        """On every link; before `up`."""
        plan = yaml.safe_load(self.plan.read_text())
        links = [link if isinstance(link, dict) else {"between": link} for link in plan["links"]]
        for link in links:
            near, far = sorted(link["between"])
            proxy = self.proxies[near, far] = LinkProxy(partial(self.inter, far))
            await nursery.start(proxy.run)
            link["address"] = str(proxy.address)
        plan["links"] = links
        self.plan.write_text(yaml.safe_dump(plan))

    def proxies_of(self, router: str) -> list[LinkProxy]:
        return [proxy for link, proxy in self.proxies.items() if router in link]

    async def start_together(self, routers: list[str]) -> None:
        await self._launcher.start(routers)

    async def stop_all(self) -> None:
        await self._launcher.stop(self.routers)

    async def drain(self, router: str) -> str:
        return await self._launcher.drain(router)

    def forget_state(self, router: str) -> None:
        """As if its disk had been lost; it must not run."""
        folder = self.directory.log_path(router).parent
        for path in folder.glob("state.db*"):
            path.unlink()

    async def quiet(self) -> bool:
        """No router holds any delivery any more."""
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.TooSlowError):
            return not any([any((await self.status(router))["records"].values()) for router in self.routers])
        return False
