"""Decides the next step of a resumed link's sender for each delivery, by both ends' unsettled maps (protocol 6.8 and
7.2).

One table has the rules of AMQP 1.0 (2.6.3, 2.6.13, 2.7.3) for publishers, which are senders to a router. A publisher
keeps whole messages, and resumes each from its beginning. So `received` means the same as null here, in either map.

A map either leaves out a delivery-tag, or gives its state by AMQP's descriptor codes: `NULL`, `RECEIVED`, or a terminal
one. If an incomplete map leaves out a tag, this proves nothing.

This module knows no links and no messages, and settles nothing.
"""

from enum import Enum, auto
from typing import Final

from topic.delivery.outcomes import DeliveryOutcome

NULL: Final = 0  # unsettled, without a state
RECEIVED: Final = 0x23
TERMINAL: Final = frozenset(map(int, DeliveryOutcome))


class ResumeStep(Enum):
    """The sender's next step with a delivery."""

    NEW = auto()  # transfer the whole message as a new delivery, `resume` false
    WHOLE = auto()  # transfer the whole message, `resume` true
    STATE = auto()  # transfer `resume` true with the agreed state, without the message; settle when it may
    SETTLED = auto()  # like STATE, but settled at once: both ends know the outcome
    ABORTED = auto()  # transfer `resume` and `aborted` true: the receiver discards the delivery; this also settles it
    FORGET = auto()  # nothing is sent: the receiver has settled it
    IGNORE = auto()  # nothing to do for the sender: the receiver settles it when it reads the sender's map
    WAIT = auto()  # the receiver's map proves nothing about it: compare again at the next attach


class Mine(Enum):
    """The state in the sender's map."""

    NOTHING = auto()
    UNDECIDED = auto()  # null or received
    DECIDED = auto()  # a terminal state


class Theirs(Enum):
    """The state in the receiver's map."""

    NOTHING = auto()
    UNPROVEN = auto()  # not in the map, which proves nothing
    UNDECIDED = auto()  # null or received
    SAME = auto()  # the sender's terminal state
    OTHER = auto()  # a terminal state that is not the sender's


TABLE: Final = {
    # The receiver has never had it, or has forgotten it. The sender's map decides, and there it is in doubt.
    (Mine.UNDECIDED, Theirs.NOTHING): ResumeStep.NEW,
    (Mine.UNDECIDED, Theirs.UNPROVEN): ResumeStep.WAIT,
    (Mine.UNDECIDED, Theirs.UNDECIDED): ResumeStep.WHOLE,
    (Mine.UNDECIDED, Theirs.OTHER): ResumeStep.STATE,  # the receiver's state: the message is never sent again
    (Mine.DECIDED, Theirs.NOTHING): ResumeStep.FORGET,
    (Mine.DECIDED, Theirs.UNPROVEN): ResumeStep.WAIT,
    (Mine.DECIDED, Theirs.UNDECIDED): ResumeStep.ABORTED,
    (Mine.DECIDED, Theirs.SAME): ResumeStep.SETTLED,
    (Mine.DECIDED, Theirs.OTHER): ResumeStep.STATE,  # the sender's state: the receiver restates it and settles
    (Mine.NOTHING, Theirs.NOTHING): ResumeStep.IGNORE,
    (Mine.NOTHING, Theirs.UNPROVEN): ResumeStep.IGNORE,
    (Mine.NOTHING, Theirs.UNDECIDED): ResumeStep.IGNORE,
    (Mine.NOTHING, Theirs.OTHER): ResumeStep.IGNORE,
}


def step(mine: int | None, theirs: int | None, *, proven: bool = True) -> ResumeStep:
    """The step for one delivery, by its states in the two maps (None: not in the map). `proven`: whether both maps are
    complete as far as this delivery goes, so that its absence from the receiver's map proves something."""
    return TABLE[_mine(mine), _theirs(mine, theirs, proven)]


def agreed_state(mine: int, theirs: int) -> int:
    """The terminal state with which `ResumeStep.STATE` and `ResumeStep.SETTLED` resume: the sender's, if it has one."""
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
