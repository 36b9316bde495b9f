"""Clients that all come at once leave the loop to the neighbours in between (`router.turns`)."""

import trio
import trio.testing

from router.turns import PASS_S, ClientTurns

CLIENTS = 20


async def test_between_the_turns_of_many_clients_others_are_served(mock_clock: trio.testing.MockClock) -> None:
    turns, served = ClientTurns(), list[str]()
    trio.lowlevel.add_instrument(turns)

    async def client() -> None:
        await turns.turn()
        served.append("client")
        mock_clock.jump(0.6 * PASS_S)

    async def neighbour() -> None:
        while served.count("client") < CLIENTS:
            served.append("neighbour")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(neighbour)
        for _ in range(CLIENTS):
            nursery.start_soon(client)
    passes = "".join(who[0] for who in served).split("n")
    assert max(map(len, passes)) <= 4, "two clients fill a pass: at most so many between two looks of a neighbour"
    assert served.count("client") == CLIENTS
