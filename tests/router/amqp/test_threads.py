"""Each thread of a process may have connections of its own: a client of trio in one, a client in another."""

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from router.amqp.proton.library import as_tag, ffi
from tests.router.amqp.pair import Pair

THREADS = 4
ROUNDS = 100
BATCH = 8


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns as often as Python can make them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run(*acts: Callable[[], object]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_tag_is_its_threads_own() -> None:
    tag = as_tag(b"mine")
    run(lambda: as_tag(b"theirs"))
    assert ffi.unpack(tag.start, tag.size) == b"mine"


def test_threads_do_not_mix_their_messages(hasty_threads: None) -> None:
    """One batch in two goes through the compiled loops, if there are any; single messages go through Python."""
    came: dict[int, bool] = {}

    def exchange(number: int) -> None:
        pair, letter = Pair(), b"%d" % number
        link = pair.client.sender("l", "a")
        pair.pump()
        pair.there.attached[0].answer()
        pair.there.attached[0].flow(2 * ROUNDS * BATCH)
        pair.pump()
        sent: list[tuple[bytes, bytes]] = []
        for at in range(ROUNDS):
            messages = [letter * (1 + at * BATCH + n) for n in range(BATCH)]
            tags = [letter + b"%d" % (at * BATCH + n) for n in range(BATCH)]
            if at % 2:
                link.send_many(tags, messages, settled=False)
                pair.pump()
            else:
                for tag, message in zip(tags, messages, strict=True):
                    link.send(tag, message)
                    pair.pump()
            sent += zip(tags, messages, strict=True)
        came[number] = list(zip(pair.there.tags, pair.there.messages, strict=True)) == sent

    run(*(partial(exchange, number) for number in range(THREADS)))
    assert came == dict.fromkeys(range(THREADS), True)
