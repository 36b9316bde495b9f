"""Wrong passwords from one address: some are free, then they are slow; others' are not."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from router.amqp.format.errors import AmqpError
from router.amqp.sasl.layer import INIT, SASL_HEADER, sasl_frame
from router.amqp.sasl.scram import Verifier
from router.amqp.sasl.server import PLAIN, PlainServer, SaslServer
from router.amqp.tls import TlsError
from router.amqp.transport import at_once
from router.mesh.topology import load
from router.security.attempts import EVERY_S, FORGET_S, FREE, MOST_S, MOST_SOURCES, Attempts, Checks, Guesses
from router.security.doors import Doors

HOST = "203.0.113.7"


class Passes(trio.abc.Instrument):
    """Of the loop."""

    count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attempts(clock: Clock) -> Attempts:
    return Attempts(clock)


def guessed(attempts: Attempts, times: int, host: str = HOST) -> None:
    for _ in range(times):
        attempts.was_wrong(host)


def test_a_few_wrong_passwords_cost_nothing(attempts: Attempts) -> None:
    guessed(attempts, FREE - 1)
    assert attempts.take_turn(HOST) == 0


def test_then_attempts_have_a_turn_each_and_too_many_at_once_are_turned_away(attempts: Attempts, clock: Clock) -> None:
    guessed(attempts, FREE)
    turns = [attempts.take_turn(HOST) for _ in range(int(MOST_S / EVERY_S) + 1)]
    assert turns == [*(EVERY_S * n for n in range(1, len(turns))), None]
    clock.now += EVERY_S
    assert attempts.take_turn(HOST) == MOST_S, "a turn is over"


def test_who_came_before_makes_no_attempt_out_of_turn(attempts: Attempts, clock: Clock) -> None:
    assert all(attempts.take_turn_now(HOST) for _ in range(2 * FREE))
    guessed(attempts, FREE)
    assert [attempts.take_turn_now(HOST) for _ in range(3)] == [True, False, False]
    assert attempts.take_turn(HOST) == EVERY_S
    clock.now += EVERY_S
    assert not attempts.take_turn_now(HOST), "it is the turn of the one that waited"
    clock.now += EVERY_S
    assert [attempts.take_turn_now(HOST) for _ in range(2)] == [True, False]


def test_others_do_not_wait(attempts: Attempts) -> None:
    guessed(attempts, FREE)
    assert attempts.take_turn("203.0.113.8") == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_whoever_comes_from_this_host_may_be_a_proxy(attempts: Attempts, host: str) -> None:
    guessed(attempts, 2 * FREE, host)
    assert attempts.take_turn(host) == 0


def test_all_addresses_of_a_network_are_one(attempts: Attempts) -> None:
    for number in range(FREE):
        attempts.was_wrong(f"2001:db8::{number + 1:x}")
    assert attempts.take_turn("2001:db8::ffff") == EVERY_S
    assert attempts.take_turn("2001:db8:0:1::1") == 0


def test_it_is_forgotten_after_a_while(attempts: Attempts, clock: Clock) -> None:
    guessed(attempts, FREE)
    clock.now += FORGET_S + 1
    assert attempts.take_turn(HOST) == 0
    attempts.was_wrong(HOST)
    assert attempts.take_turn(HOST) == 0, "they are counted anew"


def test_no_more_sources_are_kept_than_there_is_room_for(attempts: Attempts) -> None:
    guessed(attempts, FREE)
    for number in range(MOST_SOURCES):
        attempts.was_wrong(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert attempts.take_turn(HOST) == 0


def test_an_exchange_that_fails_is_told() -> None:
    denied: list[str] = []
    verifier = Verifier.of("the password")
    server = SaslServer({PLAIN: lambda: PlainServer(lambda _: verifier)}, lambda: denied.append("one"))
    with pytest.raises(AmqpError, match="wrong"):
        server.receive(SASL_HEADER + sasl_frame(INIT, PLAIN, b"\0bob\0another one"))
    assert denied == ["one"]


class Stream:
    """As far as a door looks at one in clear."""

    def __init__(self) -> None:
        self.socket = self

    def getpeername(self) -> tuple[str, int]:
        return HOST, 40000


async def test_who_has_said_too_many_wrong_ones_waits_at_every_door(tmp_path: Path, autojump_clock: MockClock) -> None:
    topology = tmp_path / "mesh.yaml"
    topology.write_text("{mesh: m, routers: {a: {amqp: 127.0.0.1:0}}}")
    doors = Doors(load(topology), "a")
    came: Any = Stream()
    for _ in range(FREE):
        _, _, guesses = await doors.let_in(came)
        guesses.was_wrong()
    began = trio.current_time()
    await doors.let_in(came)
    assert trio.current_time() - began == EVERY_S
    async with trio.open_nursery() as nursery:
        for _ in range(int(MOST_S / EVERY_S)):
            nursery.start_soon(doors.let_in, came)
        await wait_all_tasks_blocked()
        with pytest.raises(TlsError, match="too many wrong passwords"):
            await doors.let_in(came)


async def test_one_password_is_looked_at_in_a_pass_and_addresses_take_turns() -> None:
    """Whoever says many at once holds up those who share the address, and nobody else: be it on this host."""
    checks, order, passes = Checks(), list[str](), Passes()
    trio.lowlevel.add_instrument(checks)
    trio.lowlevel.add_instrument(passes)
    at = list[int]()

    async def says(host: str) -> None:
        guesses = Guesses(Attempts(trio.current_time), host, checks)
        await guesses.after(at_once, lambda: False)()
        assert guesses.may_check()
        order.append(host)
        at.append(passes.count)

    many, right = [HOST, "127.0.0.1"], "198.51.100.1"
    async with trio.open_nursery() as nursery:
        for host in many * 60:
            nursery.start_soon(says, host)
        while len(order) < 10:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(says, right)
    trio.lowlevel.remove_instrument(checks)
    trio.lowlevel.remove_instrument(passes)
    assert order.index(right) <= 12, "one before it, at most"
    assert all(later >= earlier + 2 for earlier, later in pairwise(at)), "with a pass in between"
    order.remove(right)
    assert all(one != other for one, other in pairwise(order))


async def test_who_waits_for_his_turn_and_gives_up_holds_up_nobody() -> None:
    checks = Checks()
    trio.lowlevel.add_instrument(checks)
    checks.made(HOST)
    with trio.move_on_after(0):
        await checks.turn("198.51.100.1")
    await checks.turn(HOST)
    trio.lowlevel.remove_instrument(checks)
