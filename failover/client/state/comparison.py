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

NULL: Final = 0  # the delivery is unsettled, and has no state
RECEIVED: Final = 0x23
TERMINAL: Final = frozenset(map(int, DeliveryOutcome))


class ResumeStep(Enum):
    """The next action of the sender for a delivery."""

    NEW = auto()  # transfer the whole message as a new delivery, with `resume` false
    WHOLE = auto()  # transfer the whole message, with `resume` true
    # Transfer the agreed state without the message, with `resume` true. Settle when the order of writes allows it.
    STATE = auto()
    SETTLED = auto()  # do as for STATE, but settle at once: both ends know the outcome
    # Transfer with `resume` and `aborted` true, so that the receiver discards and settles the delivery.
    ABORTED = auto()
    FORGET = auto()  # send nothing, because the receiver has settled the delivery
    IGNORE = auto()  # send nothing: the receiver settles the delivery because the sender's map lacks it
    WAIT = auto()  # compare again at the next attach, because the receiver's map proves nothing here


class Mine(Enum):
    """The state that the delivery has in the sender's map."""

    NOTHING = auto()
    UNDECIDED = auto()  # the sender's map has the state null or received
    DECIDED = auto()  # the sender's map has a terminal state


class Theirs(Enum):
    """The state that the delivery has in the receiver's map."""

    NOTHING = auto()
    UNPROVEN = auto()  # the map lacks the delivery, but is incomplete, so its absence proves nothing
    UNDECIDED = auto()  # the receiver's map has the state null or received
    SAME = auto()  # the receiver's map has the sender's terminal state
    OTHER = auto()  # the receiver's map has another terminal state than the sender's


TABLE: Final = {
    # The receiver has never had the delivery, or has forgotten it. If the sender has no outcome, it sends the message.
    (Mine.UNDECIDED, Theirs.NOTHING): ResumeStep.NEW,
    (Mine.UNDECIDED, Theirs.UNPROVEN): ResumeStep.WAIT,
    (Mine.UNDECIDED, Theirs.UNDECIDED): ResumeStep.WHOLE,
    # The sender takes over the receiver's state, and never sends the message again.
    (Mine.UNDECIDED, Theirs.OTHER): ResumeStep.STATE,
    (Mine.DECIDED, Theirs.NOTHING): ResumeStep.FORGET,
    (Mine.DECIDED, Theirs.UNPROVEN): ResumeStep.WAIT,
    (Mine.DECIDED, Theirs.UNDECIDED): ResumeStep.ABORTED,
    (Mine.DECIDED, Theirs.SAME): ResumeStep.SETTLED,
    (Mine.DECIDED, Theirs.OTHER): ResumeStep.STATE,  # the receiver takes over the sender's state, and settles
    (Mine.NOTHING, Theirs.NOTHING): ResumeStep.IGNORE,
    (Mine.NOTHING, Theirs.UNPROVEN): ResumeStep.IGNORE,
    (Mine.NOTHING, Theirs.UNDECIDED): ResumeStep.IGNORE,
    (Mine.NOTHING, Theirs.OTHER): ResumeStep.IGNORE,
}


def step(mine: int | None, theirs: int | None, *, proven: bool = True) -> ResumeStep:
    """Return the step for one delivery, by its states in the two maps. A state of None means that the map does not have
    the delivery.

    `proven` says whether the maps are complete as far as this delivery goes, so that its absence from the receiver's
    map proves something.
    """
    return TABLE[_mine(mine), _theirs(mine, theirs, proven)]


def agreed_state(mine: int, theirs: int) -> int:
    """The terminal state with which the steps STATE and SETTLED resume a delivery. This is the sender's state if it has
    one, otherwise the receiver's."""
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
