"""What is done to a mesh under load. Every strike returns when what it broke is whole again."""

import time
from collections.abc import Mapping

import attrs
import trio

from tests.soak.mortal import Mortal
from tests.soak.stage import Stage, Strike


@attrs.frozen
class Scenario:
    """`links`: it cuts links. `mortal`: it kills clients."""

    strike: Strike
    links: bool = False
    mortal: bool = False


async def kill_home(stage: Stage) -> None:
    await stage.kill_for_a_while(stage.home)


async def kill_custodian(stage: Stage) -> None:
    await stage.kill_for_a_while(stage.custodian)


async def kill_both(stage: Stage) -> None:
    await stage.kill_for_a_while(stage.home, stage.custodian)


async def kill_all(stage: Stage) -> None:
    """The publishers come back before the subscribers."""
    await _kill_all(stage, forget=False)


async def kill_all_no_store(stage: Stage) -> None:
    """What is published until a subscriber is back is lost to it, as nobody knows of it. Nothing may be doubled."""
    await _kill_all(stage, forget=True)


async def _kill_all(stage: Stage, *, forget: bool) -> None:
    killed = time.monotonic()
    await stage.kill(*stage.mesh.routers)
    for subscriber in stage.subscribers:
        subscriber.leave()
    if forget:
        stage.forgotten = killed
        for router in stage.mesh.routers:
            stage.mesh.forget_state(router)
    await trio.sleep(stage.draw(stage.lengths.away))
    await stage.mesh.start_together(stage.mesh.routers)
    await stage.publishers_attached(killed)
    await trio.sleep(stage.draw(stage.lengths.away))
    for subscriber in stage.subscribers:
        subscriber.come_back()


async def sigstop(stage: Stage) -> None:
    """A home that does not know that it is none any more."""
    await stage.hang(stage.home)


async def sigstop_custodian(stage: Stage) -> None:
    await stage.hang(stage.custodian)


async def cut_link(stage: Stage) -> None:
    """Any link, in either way."""
    proxy = stage.random.choice(list(stage.mesh.proxies.values()))
    if stage.random.random() < 0.5:
        proxy.silence()
    else:
        proxy.sever()
    await trio.sleep(stage.lengths.hung)
    proxy.heal()


async def partition(stage: Stage) -> None:
    """The home is cut off from all others, with the clients that stay with it."""
    proxies = stage.mesh.proxies_of(stage.home)
    for proxy in proxies:
        proxy.silence()
    await trio.sleep(stage.lengths.hung)
    for proxy in proxies:
        proxy.heal()


async def kill_client(stage: Stage) -> None:
    """A publisher's process, a subscriber's, or both; started again with their state files."""
    mortal = [client for client in (*stage.publishers, *stage.subscribers) if isinstance(client, Mortal)]
    victims = stage.random.choice([mortal, *([one] for one in mortal)])
    for victim in victims:
        victim.leave()
    await trio.sleep(stage.draw(stage.lengths.away))
    for victim in victims:
        victim.come_back()


async def rolling_restart(stage: Stage) -> None:
    """Each router in turn is drained and started again."""
    for router in stage.mesh.routers:
        await stage.mesh.drain(router)
        await stage.mesh.start(router)


SCENARIOS: Mapping[str, Scenario] = {
    "kill-home": Scenario(kill_home),
    "kill-custodian": Scenario(kill_custodian),
    "kill-both": Scenario(kill_both),
    "kill-all": Scenario(kill_all),
    "kill-all-no-store": Scenario(kill_all_no_store),
    "sigstop": Scenario(sigstop),
    "sigstop-custodian": Scenario(sigstop_custodian),
    "cut-link": Scenario(cut_link, links=True),
    "partition": Scenario(partition, links=True),
    "kill-client": Scenario(kill_client, mortal=True),
    "rolling-restart": Scenario(rolling_restart),
}
