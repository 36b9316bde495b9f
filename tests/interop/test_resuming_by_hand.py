"""rhea with unsettled maps made by hand resumes: where it was, elsewhere, and elsewhere after its router was killed.

    a - publisher
   / \\
  b---c - subscriber
"""

from collections.abc import Iterator
from signal import SIGKILL

import pytest
import trio

from tests.interop.resuming import RheaPublisher, RheaSubscriber, Transfer, require_rhea
from tests.processes.mesh import RunningMesh, eventually, running

COUNT = 300
ASKED_S = 60
TERMINUS_S = 4


@pytest.fixture
def mesh(triangle: RunningMesh) -> RunningMesh:
    """Routers that a test kills are running again when it has come to its end."""
    return triangle


@pytest.fixture(scope="module")
def hasty_triangle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """That does not wait as long as clients ask it to."""
    with running("triangle", tmp_path_factory.mktemp("hasty"), terminus=f"{TERMINUS_S}s") as mesh:
        yield mesh


@pytest.fixture
async def publisher(nursery: trio.Nursery, request: pytest.FixtureRequest) -> RheaPublisher:
    require_rhea()
    return RheaPublisher(nursery, "publisher", f"topic/{request.node.name}")


@pytest.fixture
async def subscriber(nursery: trio.Nursery, request: pytest.FixtureRequest) -> RheaSubscriber:
    require_rhea()
    return RheaSubscriber(nursery, "subscriber", f"topic/{request.node.name}")


async def kill(mesh: RunningMesh, *routers: str) -> None:
    for router in routers:
        mesh.signal(router, SIGKILL)
    for router in routers:
        assert await mesh.ending(router) == "ended by SIGKILL"


async def come_to_doubt(publisher: RheaPublisher, subscriber: RheaSubscriber) -> dict[str, str | None]:
    """Messages that come to be what their names say, with a credit of 2. Returns the subscriber's map before it knew of
    the settlement, which is given back to it as if it had not read that."""
    await publisher.send("settled", "accepted", "decided", "doubtful", "unseen")
    await subscriber.received("settled", "accepted")
    await subscriber.accept("settled", "accepted")
    await subscriber.received("settled", "accepted", "decided", "doubtful")
    await publisher.accepted("settled", "accepted")
    before = dict(subscriber.unsettled)
    await publisher.settle("settled")
    await subscriber.settled("settled")
    return before


async def finish(mesh: RunningMesh, publisher: RheaPublisher, subscriber: RheaSubscriber) -> None:
    """All that is under way is accepted and settled at both ends, and so is what comes now; then both end, all routers
    run again, and nothing is left in them."""
    await publisher.send("later")
    await subscriber.until(lambda: subscriber.handed_out[-1] == "later")
    await subscriber.accept(*subscriber.undecided())
    await publisher.until(lambda: None not in publisher.unsettled.values())
    await publisher.settle(*publisher.unsettled)
    await subscriber.until(lambda: not subscriber.unsettled)
    assert set(publisher.life.outcomes.values()) <= {"accepted"}
    assert len(set(subscriber.handed_out)) == len(subscriber.handed_out)
    await publisher.end()
    await subscriber.end()
    for router in mesh.routers:
        if router not in mesh.directory.running():
            await mesh.start(router)
    await mesh.forgets()


@pytest.mark.parametrize(("router", "killed"), [("c", ""), ("b", ""), ("b", "c")], ids=["same", "move", "kill"])
async def test_a_subscriber_resumes(
    router: str, killed: str, mesh: RunningMesh, publisher: RheaPublisher, subscriber: RheaSubscriber
) -> None:
    assert await subscriber.attach(mesh.address("c"), credit=2) is None
    assert await publisher.attach(mesh.address("a")) is None
    before = await come_to_doubt(publisher, subscriber)

    await (kill(mesh, killed) if killed else subscriber.vanish())
    subscriber.unsettled = before
    subscriber.decide("decided")
    theirs = await subscriber.attach(mesh.address(router))

    key = subscriber.keys
    stated = ["accepted", "decided"]
    assert theirs is not None
    if router != "c" and key["settled"] in theirs:  # not known yet: home asks its publisher for a sign of life first
        stated.insert(0, "settled")
    assert theirs == {**{key[body]: "accepted" for body in stated}, key["doubtful"]: None}
    await publisher.accepted("decided")
    assert publisher.life.outcomes.keys() == {"settled", "accepted", "decided"}
    await subscriber.received("settled", "accepted", "decided", "doubtful", "unseen")
    assert subscriber.life.transfers == [
        *(Transfer(key[body], "", "accepted", resume=True) for body in stated),
        Transfer(key["doubtful"], "doubtful", resume=True),
        Transfer(key["unseen"], "unseen"),
    ]
    await finish(mesh, publisher, subscriber)


@pytest.mark.parametrize(
    ("router", "killed", "flagged"),
    [("a", "", True), ("b", "", True), ("c", "", True), ("b", "a", True), ("c", "a", True), ("c", "a", False)],
    ids=["same", "move", "move-to-holder", "kill", "kill-to-holder", "kill-without-the-flag"],
)
async def test_a_publisher_resumes(
    router: str,
    killed: str,
    flagged: bool,
    mesh: RunningMesh,
    publisher: RheaPublisher,
    subscriber: RheaSubscriber,
) -> None:
    assert await subscriber.attach(mesh.address("c")) is None
    assert await publisher.attach(mesh.address("a")) is None
    assert publisher.life.timeout == ASKED_S
    generation = publisher.generation
    await publisher.send("settled", "accepted", "untold", "doubtful")
    await subscriber.received("settled", "accepted", "untold", "doubtful")
    await subscriber.accept("settled", "accepted", "untold")
    await publisher.accepted("settled", "accepted", "untold")
    await publisher.settle("settled")
    await subscriber.settled("settled")

    await (kill(mesh, killed) if killed else publisher.vanish())
    publisher.unsettled |= {"untold": None, "lost": None}  # an outcome that was not read, a transfer that did not come
    theirs = await publisher.attach(mesh.address(router))

    assert theirs == ({} if router == "b" else {"untold": None, "doubtful": None})  # b holds no message of it
    assert publisher.generation == generation
    await publisher.resume(flagged=flagged)
    await publisher.accepted("untold")
    await subscriber.settled("accepted")  # its outcome is in the map: that settles it
    await subscriber.received("settled", "accepted", "untold", "doubtful", "lost")
    assert publisher.life.outcomes == {"untold": "accepted"}
    await finish(mesh, publisher, subscriber)
    assert [transfer.body for transfer in subscriber.life.transfers] == subscriber.handed_out
    assert not any(transfer.resume for transfer in subscriber.life.transfers)


async def test_what_a_subscribers_incomplete_map_leaves_out_waits_for_the_next_attach(
    mesh: RunningMesh, publisher: RheaPublisher, subscriber: RheaSubscriber
) -> None:
    await subscriber.attach(mesh.address("c"), credit=2)
    await publisher.attach(mesh.address("a"))
    await come_to_doubt(publisher, subscriber)
    await subscriber.vanish()
    subscriber.decide("decided")
    key = subscriber.keys
    assert await subscriber.attach(mesh.address("b"), naming=[key["doubtful"]]) == {key["doubtful"]: None}
    await subscriber.until(lambda: bool(subscriber.life.transfers))
    await subscriber.accept("doubtful")
    await publisher.accepted("doubtful")
    assert subscriber.life.transfers == [Transfer(key["doubtful"], "doubtful", resume=True)]

    await subscriber.vanish()
    stated = {key[body]: "accepted" for body in ("accepted", "decided", "doubtful")}
    assert await subscriber.attach(mesh.address("b")) == stated
    await publisher.accepted("decided")
    await subscriber.received("settled", "accepted", "decided", "doubtful", "unseen")
    await finish(mesh, publisher, subscriber)


async def test_what_a_publishers_incomplete_map_leaves_out_stays_in_doubt(
    mesh: RunningMesh, publisher: RheaPublisher, subscriber: RheaSubscriber
) -> None:
    await subscriber.attach(mesh.address("c"))
    await publisher.attach(mesh.address("a"))
    await publisher.send("first", "second")
    await subscriber.received("first", "second")
    await publisher.vanish()
    assert await publisher.attach(mesh.address("c"), naming=["first"]) == {"first": None}
    await publisher.resume()
    await subscriber.accept("first", "second")
    await publisher.accepted("first")
    assert publisher.life.outcomes.keys() == {"first"}

    await publisher.settle("first")
    await publisher.vanish()
    assert await publisher.attach(mesh.address("c")) == {"second": None}
    await publisher.resume()
    await publisher.accepted("second")
    await finish(mesh, publisher, subscriber)
    assert subscriber.handed_out == ["first", "second", "later"]


@pytest.mark.parametrize("first", ["publisher", "subscriber"])
@pytest.mark.parametrize("killed", ["a", "abc"], ids=["their-router", "all-routers"])
async def test_both_resume_at_once(
    killed: str, first: str, mesh: RunningMesh, publisher: RheaPublisher, subscriber: RheaSubscriber
) -> None:
    await subscriber.attach(mesh.address("a"), credit=2)
    await publisher.attach(mesh.address("a"))
    before = await come_to_doubt(publisher, subscriber)

    await kill(mesh, *killed)
    if killed == "abc":
        for router in killed:
            await mesh.start(router)
    subscriber.unsettled = before
    subscriber.decide("decided")
    if first == "publisher":
        await publisher.attach(mesh.address("b"))
        await publisher.resume()
        await subscriber.attach(mesh.address("c"))
    else:
        await subscriber.attach(mesh.address("c"))
        await publisher.attach(mesh.address("b"))
        await publisher.resume()

    await subscriber.received("settled", "accepted", "decided", "doubtful", "unseen")
    await publisher.accepted("decided")
    await subscriber.until(
        lambda: subscriber.keys["accepted"] not in subscriber.unsettled
    )  # the publisher's map said so
    await subscriber.until(lambda: subscriber.keys["settled"] not in subscriber.unsettled)
    payloads = [(transfer.body, transfer.resume) for transfer in subscriber.life.transfers if transfer.body]
    assert payloads == [("doubtful", True), ("unseen", False)]
    await finish(mesh, publisher, subscriber)


@pytest.mark.parametrize(("home", "custodian", "killed"), [("a", "c", "a"), ("a", "c", "c"), ("a", "a", "a")])
async def test_a_stream_goes_on_without_the_killed_router(
    home: str, custodian: str, killed: str, mesh: RunningMesh, publisher: RheaPublisher, subscriber: RheaSubscriber
) -> None:
    await subscriber.attach(mesh.address(custodian))
    await publisher.attach(mesh.address(home))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publisher.publish, COUNT, mesh.address("b"))
        nursery.start_soon(subscriber.consume, COUNT, mesh.address("b"))
        await subscriber.until(lambda: len(subscriber.handed_out) > COUNT // 3)
        await kill(mesh, killed)
    assert subscriber.handed_out == [str(number) for number in range(COUNT)]
    await finish(mesh, publisher, subscriber)


@pytest.mark.parametrize("killed", ["a"])
async def test_what_its_publisher_has_given_up_is_aborted(
    killed: str, mesh: RunningMesh, publisher: RheaPublisher, subscriber: RheaSubscriber
) -> None:
    await subscriber.attach(mesh.address("a"))
    await publisher.attach(mesh.address("a"))
    await publisher.send("doubtful")
    await subscriber.received("doubtful")
    await kill(mesh, killed)
    key = subscriber.keys["doubtful"]
    assert await subscriber.attach(mesh.address("c")) == {key: None}  # for all that is known without its publisher
    publisher.unsettled.clear()
    assert await publisher.attach(mesh.address("b")) == {}
    await subscriber.settled("doubtful")
    assert subscriber.life.transfers == [Transfer(key, "", resume=True, aborted=True)]
    await finish(mesh, publisher, subscriber)


async def test_a_publisher_whose_life_is_over_is_told_by_its_generation(
    hasty_triangle: RunningMesh, publisher: RheaPublisher, subscriber: RheaSubscriber
) -> None:
    await subscriber.attach(hasty_triangle.address("c"))
    await publisher.attach(hasty_triangle.address("a"))
    assert publisher.life.timeout == TERMINUS_S < ASKED_S
    generation = publisher.generation
    await publisher.send("doubtful")
    await subscriber.received("doubtful")
    await publisher.vanish()
    await expired(hasty_triangle, "a", "publishers")
    assert await publisher.attach(hasty_triangle.address("b")) is None
    assert publisher.generation != generation
    await subscriber.accept("doubtful")  # it counts, but nobody can tell the publisher any more
    await subscriber.settled("doubtful")
    publisher.unsettled.clear()
    await finish(hasty_triangle, publisher, subscriber)


async def test_a_subscriber_that_was_waited_for_no_longer_brings_its_map_and_has_nothing_twice(
    hasty_triangle: RunningMesh, publisher: RheaPublisher, subscriber: RheaSubscriber
) -> None:
    await subscriber.attach(hasty_triangle.address("c"))
    await publisher.attach(hasty_triangle.address("a"))
    await publisher.send("doubtful")
    await subscriber.received("doubtful")
    await subscriber.vanish()
    await publisher.accepted("doubtful")  # by all that are still waited for: nobody
    await publisher.settle("doubtful")
    await subscriber.attach(hasty_triangle.address("b"))
    await finish(hasty_triangle, publisher, subscriber)
    assert [transfer.body for transfer in subscriber.life.transfers if transfer.body] == ["later"]


async def expired(mesh: RunningMesh, router: str, role: str) -> None:
    async def is_so() -> bool:
        return not (await mesh.status(router))[role]

    await eventually(is_so)
