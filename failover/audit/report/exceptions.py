"""What keeps a verdict from being one for everybody: who was left out though it was there, and whose link was ended in
use. In words, with names and numbers, made of what was counted and of what is known of links.
"""

from collections.abc import Iterator, Sequence

from failover.audit.judge.tally import Tally
from failover.audit.judge.unattributed import Missed
from failover.audit.mesh.case import Case
from failover.audit.mesh.presence import Parting


def exceptions(tally: Tally, case: Case) -> tuple[str, ...]:
    """The most deliveries first."""
    left: dict[tuple[str, str], Missed] = {}
    for (_, subscriber, home), missed in tally.without.items():
        left[subscriber, home] = missed.and_(left.get((subscriber, home)))
    ordered = sorted(left.items(), key=lambda item: (-item[1].count, item[0]))
    return (*(_left_out(case, *whose, missed) for whose, missed in ordered), *_ended(case, {name for name, _ in left}))


def _ended(case: Case, left: set[str]) -> Iterator[str]:
    """Whoever was left out has been told of already."""
    known = case.clients.publishers | case.clients.subscribers
    for ended in case.ended_in_use:
        if ended.link not in left:
            reason = f" ({ended.reason})" if ended.reason else ""
            yield f"{known[ended.link].identity} was ended as expired while it was attached at {ended.router}{reason}"


def _left_out(case: Case, subscriber: str, home: str, missed: Missed) -> str:
    name = case.clients.subscribers[subscriber].identity
    deliveries = "1 delivery was" if missed.count == 1 else f"{missed.count} deliveries were"
    return f"{deliveries} accepted without {name}, which {_why(case, subscriber, home, missed)}"


def _why(case: Case, subscriber: str, home: str, missed: Missed) -> str:
    router = home.rpartition(".")[0]
    if not router:
        return "was there; which router did so is not known, as its log may lack its end"
    if any(home in lost.homes and lost.at <= missed.first for lost in case.state_losses):
        return f"{router} did not know: no router had found its state store"
    apart = _apart(case.partings.get((home, subscriber), ()), missed)
    if apart is None or not apart.known:
        forgetful = ": it had begun without its state store" if home in case.forgetful else ""
        return f"{router} did not know{forgetful}"
    if apart.ending is not None:
        return f"{router} took for ended" + (f": {apart.ending}" if apart.ending else "")
    timeout_s = case.clients.subscribers[subscriber].timeout_s
    if apart.lasted_us is None:
        return f"was apart from {router} from then on; its timeout is {timeout_s:g} s"
    lasted_s = apart.lasted_us / 1_000_000
    longer = "longer" if lasted_s >= timeout_s else "not longer"
    return f"was apart from {router} for {lasted_s:.1f} s, {longer} than its timeout of {timeout_s:g} s"


def _apart(partings: Sequence[Parting], missed: Missed) -> Parting | None:
    """The longest of those in which any of the deliveries may have been accepted."""
    found = [apart for apart in partings if apart.since <= missed.last and missed.first <= apart.till]
    return max(found, key=lambda apart: (apart.known, apart.till - apart.since), default=None)
