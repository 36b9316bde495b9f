"""What the sender of a resumed link does about each delivery, by both ends' unsettled maps (protocol 6.8 and 7.2).

The rules of AMQP 1.0 (2.6.3, 2.6.13, 2.7.3) as one table, for publishers as senders to a router. These keep whole
messages: what they resume they resume from its beginning, so `received` means no more than null here, on either side.

A map says of a delivery-tag either nothing, or a state, by AMQP's descriptor codes: `NULL`, `RECEIVED`, or one of the
terminal ones. An incomplete map proves nothing by what it leaves out.

Never here: a link, a message, or what settling a delivery takes.
"""

from enum import Enum, auto
from typing import Final

from topic.delivery.outcomes import DeliveryOutcome

NULL: Final = 0  # unsettled, without a state
RECEIVED: Final = 0x23
TERMINAL: Final = frozenset(map(int, DeliveryOutcome))


class ResumeStep(Enum):
    """What the sender does."""

    NEW = auto()  # transfer the whole message as a new delivery, `resume` false
    WHOLE = auto()  # transfer the whole message, `resume` true
    STATE = auto()  # transfer `resume` true with the agreed state, without the message; settle when it may
    SETTLED = auto()  # the same, and settled at once: both ends know the outcome
    ABORTED = auto()  # transfer `resume` and `aborted` true: the receiver discards what it has; settles it too
    FORGET = auto()  # nothing is sent: the receiver has settled it
    IGNORE = auto()  # nothing to do with us: the receiver settles it when it sees our map
    WAIT = auto()  # the receiver's map proves nothing about it: compare again at the next attach


class Mine(Enum):
    """What the sender's map says."""

    NOTHING = auto()
    UNDECIDED = auto()  # null or received
    DECIDED = auto()  # a terminal state


class Theirs(Enum):
    """What the receiver's map says."""

    NOTHING = auto()
    UNPROVEN = auto()  # nothing, and its silence proves nothing
    UNDECIDED = auto()  # null or received
    SAME = auto()  # the sender's terminal state
    OTHER = auto()  # a terminal state that is not the sender's


TABLE: Final = {
    # As the receiver has not got it, or has forgotten it: the map of ours that says it is in doubt decides.
    (Mine.UNDECIDED, Theirs.NOTHING): ResumeStep.NEW,
    (Mine.UNDECIDED, Theirs.UNPROVEN): ResumeStep.WAIT,
    (Mine.UNDECIDED, Theirs.UNDECIDED): ResumeStep.WHOLE,
    (Mine.UNDECIDED, Theirs.OTHER): ResumeStep.STATE,  # theirs: it is never sent again
    (Mine.DECIDED, Theirs.NOTHING): ResumeStep.FORGET,
    (Mine.DECIDED, Theirs.UNPROVEN): ResumeStep.WAIT,
    (Mine.DECIDED, Theirs.UNDECIDED): ResumeStep.ABORTED,
    (Mine.DECIDED, Theirs.SAME): ResumeStep.SETTLED,
    (Mine.DECIDED, Theirs.OTHER): ResumeStep.STATE,  # ours: the receiver restates it and settles
    (Mine.NOTHING, Theirs.NOTHING): ResumeStep.IGNORE,
    (Mine.NOTHING, Theirs.UNPROVEN): ResumeStep.IGNORE,
    (Mine.NOTHING, Theirs.UNDECIDED): ResumeStep.IGNORE,
    (Mine.NOTHING, Theirs.OTHER): ResumeStep.IGNORE,
}


def step(mine: int | None, theirs: int | None, *, proven: bool = True) -> ResumeStep:
    """For one delivery, by the states in the two maps (None: not in it). `proven` is whether being left out of the
    receiver's map proves anything: whether both maps are complete as far as this delivery goes."""
    return TABLE[_mine(mine), _theirs(mine, theirs, proven)]


def agreed_state(mine: int, theirs: int) -> int:
    """The terminal state with which `ResumeStep.STATE` and `ResumeStep.SETTLED` resume: the sender's if it has one."""
    state = mine if mine in TERMINAL else theirs
    assert state in TERMINAL
    return state


def _mine(state: int | None) -> Mine:
    if state is None:
        return Mine.NOTHING
    return Mine.DECIDED if _is_terminal(state) else Mine.UNDECIDED


def _theirs(mine: int | None, theirs: int | None, proven: bool) -> Theirs:
    if theirs is None:
        return Theirs.NOTHING if proven else Theirs.UNPROVEN
    if not _is_terminal(theirs):
        return Theirs.UNDECIDED
    return Theirs.SAME if theirs == mine else Theirs.OTHER


def _is_terminal(state: int) -> bool:
    if state in TERMINAL:
        return True
    if state not in (NULL, RECEIVED):
        raise ValueError(f"{state:#x} is not a delivery state")
    return False
