"""The scopes of the search."""

from functools import partial
from itertools import combinations, permutations

import attrs

from tests.topic.raft.world import Draft, Model, Scope, Walker, after, settled


def resigned(walker: Walker) -> None:
    """No replica leads."""
    walker.ask("a", "resign", 0.0)


def lost(walker: Walker, names: str) -> None:
    """The set has decided an entry. Then two of three stores are lost."""
    walker.ask("a", "propose", (b"x",))
    for name in names:
        walker.do("replace", name)
    for name in names:
        walker.do("start", name)


def nobody_leads(draft: Draft, model: Model) -> None:
    leaders = [router for router in model.routers if model.facts_of(draft, router).leads]
    assert not leaders, "two stores that are empty have elected a leader"


def apart(walker: Walker) -> None:
    """The leader and the others have lost all contacts. No replica leads."""
    walker.ask("a", "propose", (b"x",))
    for name in walker.model.names:
        walker.cut(name)


def other_file(walker: Walker) -> None:
    """Router b has another file than a and c."""
    walker.ask("b", "follow_ring", "bca")


def one_life(draft: Draft, model: Model) -> None:
    facts = [model.facts_of(draft, router) for router in model.routers]
    lives = {life for (life, _), _ in model.decided.value(draft[model.decided_at])}
    lives |= {one.life for one in facts if one.begun}
    assert len(lives) <= 1, f"the set has begun in lives {lives}"


def behind(walker: Walker, entries: int = 1) -> None:
    """Router c was away while the others decided entries, and a has them only in its snapshot."""
    walker.cut("c")
    for number in range(entries):
        walker.ask("a", "propose", (b"%d" % number,))
    walker.do("compact", "a")


def begun(draft: Draft, model: Model) -> None:
    """If all routers name the same voters, all are in contact, and no store was lost, the set has begun."""
    is_whole = all(model.contact(draft, *pair) == 3 for pair in model.pairs)
    is_whole = is_whole and all(draft[model.rings_at + router] == len(model.scope.rings) for router in model.routers)
    if is_whole and draft[model.budgets["replace"]] == model.scope.replaced:
        assert all(model.facts_of(draft, router).begun for router in model.routers), "the set does not begin"


def recovered(draft: Draft, model: Model) -> None:
    """Each entry that is decided in the latest life is in some log of that life. Each life costs a router at most one
    store.
    """
    decided = model.decided.value(draft[model.decided_at])
    latest = max(life for (life, _), _ in decided)
    logs = [model.steps.logs.value(draft[model.logs + router]) for router in model.routers]
    for (life, index), (entry, _) in decided:
        if life == latest:
            assert any(its == life and log[index - 1 : index] == (entry,) for its, log in logs), f"{entry} is lost"
    stores = [model.facts_of(draft, router).stores for router in model.routers]
    assert max(stores) <= 1 + model.scope.recoveries, f"routers have had {stores} stores"


def led_soon(draft: Draft, model: Model) -> None:
    """If a majority of the voters is in contact, each with each, a leader is there, or will be as soon as the timer of
    each voter without a leader has ended once, in any order. A leader stays, whichever timer ends. In these scopes
    nothing is under way when a timer ends; the search has other orders, too.

    So a leader is there within `boot` after a start, or within 2 × `election` after the last change of contacts or the
    last election that nobody won: no timer is longer.
    """
    views = [model.view(draft, router) for router in model.routers]
    voters = max((view for view in views if view), key=lambda view: view.commit).configuration.voters
    places = [model.names.index(voter.router) for voter in voters]
    running = [place for place in places if views[place] is not None]
    model.graphs.add(tuple(model.contact(draft, *pair) for pair in model.pairs))
    if not any(
        all(model.contact(draft, *pair) == 3 for pair in combinations(some, 2))
        for some in combinations(running, len(places) // 2 + 1)
    ):
        return
    leaders = model.leaders(draft.values)
    for order in permutations([place for place in running if (view := views[place]) and not view.leader]):
        values = draft.values
        for place in order:
            values = settled(model, after(model, values, ("tick", place)))
            if not leaders and model.leaders(values):
                break
        assert model.leaders(values), f"nobody leads after the timers of {[model.names[place] for place in order]}"
        assert not leaders or model.leaders(values) == leaders, "a leader does not stay"


def mended(draft: Draft, model: Model) -> None:
    """A leader in contact with all routers of the ring has made their stores the voters."""
    for place in model.routers:
        view = model.view(draft, place)
        if view is None or not view.leads:
            continue
        others = [model.names.index(name) for name in view.configuration.ring]
        if all(other == place or model.contact(draft, place, other) == 3 for other in others):
            stores = [one.me for one in map(partial(model.view, draft), others) if one is not None]
            assert set(view.configuration.voters) == set(stores), f"{view.configuration} at rest, expected {stores}"


def restarted(walker: Walker) -> None:
    """All processes have ended, and started again."""
    for name in walker.model.names:
        walker.do("crash", name, 0)
    for name in walker.model.names:
        walker.do("start", name)


GRAPHS = Scope(
    name="", routers="abcd", elections=2, terms=3, is_disk_slow=False, is_loss_seen_by_both=True, at_rest=led_soon
)
LONE = Scope(name="", prepare=apart, at_rest=mended, expect=recovered, are_greetings_slow=True, is_disk_slow=False)

QUICK = [
    Scope(name="entries", entries=2),
    Scope(name="a leader alone", entries=1, cuts=2, is_disk_slow=False),
    Scope(name="cuts", mirrored="bc", entries=3, elections=1, cuts=1, is_disk_slow=False),
    Scope(name="restarts", elections=1, crashes=1, is_disk_slow=False),
    Scope(name="slow disks", entries=1, elections=1, cuts=1),
    Scope(name="two candidates", prepare=resigned, mirrored="bc", elections=2),
    Scope(name="a transfer", mirrored="bc", entries=1, elections=1, transfers=1),
    Scope(name="a learner", routers="abcd", mirrored="bc", rings=("abcd",), at_rest=mended, is_disk_slow=False),
    Scope(name="voters change", routers="abcd", rings=("bcd",), at_rest=mended, is_disk_slow=False),
    Scope(name="a store replaced", mirrored="bc", elections=1, replaced=1, at_rest=mended, are_greetings_slow=True),
    Scope(name="two stores lost", prepare=partial(lost, names="bc"), expect=nobody_leads, terms=3, cuts=1, elections=2),
    Scope(name="the first two stores lost", prepare=partial(lost, names="ab"), expect=nobody_leads, terms=3, cuts=1,
          elections=2),
    Scope(name="a set begins", begun=False, expect=one_life, at_rest=begun, are_greetings_slow=True,
          is_disk_slow=False),
    Scope(name="files that differ", begun=False, prepare=other_file, rings=("abc",), replaced=1, expect=one_life,
          at_rest=begun, is_disk_slow=False),
    attrs.evolve(LONE, name="recovered", routers="ab", ring="ab", recoveries=2, entries=1, cuts=1),
    Scope(name="a snapshot", prepare=behind, entries=1, cuts=1, is_disk_slow=False),
    Scope(name="a snapshot goes on", prepare=partial(behind, entries=2), elections=1, compactions=1, cuts=1,
          is_disk_slow=False),
    attrs.evolve(GRAPHS, name="graphs of contacts, from all", meets=False, cuts=6),
]  # fmt: skip
"""Scopes for the suite; each takes seconds."""
LONG = [
    Scope(name="terms", mirrored="bc", entries=3, elections=1, cuts=1, crashes=1, is_disk_slow=False),
    Scope(name="terms and slow disks", mirrored="bc", entries=3, elections=1, cuts=1),
    Scope(name="restarts and slow disks", mirrored="bc", entries=2, elections=1, crashes=1),
    Scope(name="two candidates and a restart", prepare=resigned, mirrored="bc", elections=2, crashes=1),
    Scope(name="two candidates and a cut", prepare=resigned, mirrored="bc", elections=2, cuts=1),
    Scope(name="a transfer and a cut", mirrored="bc", entries=1, transfers=1, cuts=1, is_disk_slow=False),
    Scope(name="a transfer and a restart", mirrored="bc", transfers=1, crashes=1, is_disk_slow=False),
    Scope(name="a learner and a cut", routers="abcd", mirrored="bc", rings=("abcd",), at_rest=mended, cuts=1,
          is_disk_slow=False),
    Scope(name="a learner and an election", routers="abcd", mirrored="bc", rings=("abcd",), at_rest=mended, elections=1,
          crashes=1, losable="ad", is_disk_slow=False),
    Scope(name="a set begins and loses two stores", begun=False, replaced=2, expect=one_life, is_disk_slow=False),
    Scope(name="files that differ and slow disks", begun=False, prepare=other_file, rings=("abc",), expect=one_life,
          at_rest=begun, are_greetings_slow=True),
    attrs.evolve(LONE, name="recovered while others return", terms=3, recoveries=1, elections=1),
    attrs.evolve(LONE, name="recovered, and cuts", routers="ab", ring="ab", recoveries=2, entries=1, elections=1,
                 terms=4, cuts=2),
    attrs.evolve(LONE, name="recovered twice", recoveries=2),
    attrs.evolve(LONE, name="recovered twice, the other clock", recoveries=2, clocks="cba"),
    Scope(name="recovered, and a restart", prepare=apart, at_rest=mended, recoveries=1, crashes=1, is_disk_slow=False),
    Scope(name="a snapshot and slow disks", prepare=behind, entries=1, cuts=1, crashes=1),
    attrs.evolve(GRAPHS, name="graphs of contacts, from none", prepare=restarted),
    attrs.evolve(GRAPHS, name="graphs of contacts of four voters, from all", ring="abcd", meets=False, cuts=6),
    attrs.evolve(GRAPHS, name="graphs of contacts of four voters, from none", ring="abcd", prepare=restarted),
]  # fmt: skip
"""Scopes for `make exhaustive`."""
