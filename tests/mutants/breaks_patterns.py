"""Breakages of patterns (protocol 2, Address; 6.1)."""

from tests.mutants.mutant import KILLS, MOVING, Method, mutant
from tests.topic import test_patterns as patterns
from topic.delivery.record import Record
from topic.directory.addresses import Found, is_pattern
from topic.directory.entry import AddressAudience
from topic.edge import unconfirmed
from topic.edge.unconfirmed import Unconfirmed

MANY = {"wildcards": 1.0, "publishers": 3, "subscribers": 3}


@mutant(Found, "forget", by="2", **MOVING | MANY)
def audiences_kept_while_patterns_come(forget: Method) -> Method:
    """5 Publish: a subscriber with a pattern is in the audience of every address that the pattern covers."""

    def broken(found: Found[AddressAudience], address: str) -> None:
        if not is_pattern(address):
            forget(found, address)

    return broken


@mutant(unconfirmed, "meets", by="1245", **KILLS | MANY)
def map_of_a_pattern_not_read(_: Method) -> Method:
    """6.1: a map counts for the deliveries that its link's pattern covers."""

    def broken(one: str, other: str) -> bool:
        return one == other

    return broken


@mutant(Unconfirmed, "_found_at", by="5", scenario=patterns.test_who_refused_what_it_does_not_cover_has_no_say_in_it)
def strangers_left_in(_: Method) -> Method:
    """6.1: a subscriber that named a delivery is taken out once it turns out not to cover the address."""

    def broken(holding: Unconfirmed, address: str, records: list[Record]) -> None:
        pass

    return broken
