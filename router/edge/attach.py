"""The requests in a client's attach, and which of them this router grants or refuses (AMQP 1.0 2.6, 3.5; protocol 1,
2).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from router.amqp.format.codec import Described
from router.amqp.format.errors import INVALID_FIELD, NO_TRANSACTIONS, NOT_ALLOWED, NOT_FOUND, NOT_IMPLEMENTED
from router.amqp.format.values import (
    EXPIRE_CONNECTION,
    EXPIRE_LINK,
    EXPIRE_NEVER,
    NO_LOCAL,
    NO_LOCAL_CODE,
    RCV_FIRST,
    RCV_SECOND,
    SELECTOR,
    SELECTOR_CODE,
    SND_MIXED,
    SND_SETTLED,
    SND_UNSETTLED,
    Terminus,
)
from router.amqp.proton.link import Link
from router.edge.selector.selector import Selector
from router.edge.selector.tokens import SelectorError
from topic.delivery.kinds import AddressKinds
from topic.directory.addresses import begins_with_wildcard, is_misplaced, is_pattern
from topic.directory.entry import Lifetime, LinkEntry, Role
from topic.edge.filters import NoLocal, Wants
from topic.identity import (
    EPOCH_TEXT,
    GENERATION_LENGTH,
    NOWHERE,
    Epoch,
    LinkIdentity,
    is_of_sets,
    link_name,
    shown_address,
)
from topic.properties import ANSWERS, EPOCH, GENERATION, TOLD
from topic.settings import is_dynamic, is_under
from topic.termini.attaches import Claim
from topic.termini.generations import Generations

# The values of a terminus' durability: none, configuration, unsettled-state (AMQP 1.0 3.5.5).
DURABILITIES = (0, 1, 2)

LONGEST_ADDRESS: Final = 1024
"""The highest number of characters of an address. The limit exists because all routers learn and keep the name of each
link."""
LONGEST_NAME: Final = 1024
"""The highest number of characters of a container-id, and of a link's name."""

FLEETING: Final = Lifetime(0, EXPIRE_LINK, 0)
"""The lifetime of a terminus that ends with its link."""

_AUTHORITY = re.compile(r"^amqps?://[^/]*/?")


class Refusal(Exception):
    """The reason for which the router refuses an attach: an AMQP condition and a description. `told`: the log has the
    refusal already."""

    def __init__(self, condition: str, description: str, *, told: bool = False) -> None:
        super().__init__(description)
        self.condition = condition
        self.told = told


@frozen
class AttachRequest:
    """The requests in a client's attach to a topic, and the part of them that is granted."""

    identity: LinkIdentity
    lifetime: Lifetime
    """The lifetime that the router grants to the terminus."""
    settles_first: bool
    """True in receiver settle mode first: the client does not wait for our settlement."""
    claim: Claim
    """The link's state before this attach, as the client names it. If the client names none: a null map
    and `NOWHERE`."""
    told: bool
    """True if the subscriber says that it knows that it has missed messages (protocol 8, Apart)."""
    filters: Mapping[str, Described]
    """The filters of a subscriber that the router applies: the first selector, and no-local."""
    wants: Wants | None
    """These filters as the core's `Filter`; None if there are none."""


def read_request(link: Link, address: str, prefixes: tuple[str, ...], longest: int) -> AttachRequest:
    """Read the attach of a link to that address. `longest` is the longest timeout granted, in seconds. Raises
    `Refusal`.
    """
    check_modes(link)
    filters, selector, no_local = filters_of(link)
    identity = identity_of(link, address, prefixes, receives=link.is_sender)
    return AttachRequest(
        identity=identity,
        lifetime=FLEETING if is_dynamic(address) else lifetime_of(link, longest),
        settles_first=link.remote_rcv_settle_mode == RCV_FIRST,
        claim=Claim(
            generation=None if link.is_sender else generation_of(link),
            unsettled=unsettled_of(link),
            complete=not link.remote_incomplete_unsettled,
            seen=seen_of(link),
        ),
        told=link.remote_properties.get(TOLD) is True,
        filters=filters,
        wants=NoLocal(identity.container, identity.user, selector) if no_local else selector,
    )


def identity_of(link: Link, address: str, prefixes: tuple[str, ...], *, receives: bool) -> LinkIdentity:
    """The identity of the link. Raises `Refusal` if no link of a topic can have this address or client."""
    container = link.connection.remote_container
    if not container:
        raise Refusal(NOT_ALLOWED, "a link needs a container-id, and the open of the connection has none")
    if is_of_sets(container):
        raise Refusal(NOT_ALLOWED, f"only replica sets have the container-id {container!r}: expected another one")
    if is_dynamic(address):
        if receives and not is_dynamic_source(link):
            raise Refusal(
                NOT_ALLOWED, f"{address!r} is a dynamic address: only the link that created it may receive from it"
            )
    elif not is_under(address, prefixes):
        known = ", ".join(prefix + "…" for prefix in prefixes)
        raise Refusal(NOT_FOUND, f"no node {address!r}: expected an address of {known}")
    if why := why_no_address(address, receives=receives):
        raise Refusal(INVALID_FIELD, why)
    return LinkIdentity(container, link.name, address, link.connection.user)


def why_no_address(address: str, *, receives: bool) -> str:
    """The reason for which a client may not attach to the address; empty if it may. Only a subscriber may attach to a
    pattern."""
    if is_misplaced(address):
        return f'{address!r}: "#" is not the last word, expected nothing behind it'
    if begins_with_wildcard(address):
        return f"{address!r}: the first word is a wildcard, expected a word"
    if not receives and is_pattern(address):
        return f"{address!r} is a pattern, and only subscribers can attach to a pattern"
    return ""


def why_several_kinds(kinds: AddressKinds, address: str) -> str:
    """The reason for which a subscriber may not attach to the pattern: it covers addresses of several kinds. Empty if
    it may, or if the address is no pattern."""
    other = kinds.other_within(address) if is_pattern(address) else None
    if other is None:
        return ""
    own, theirs = kinds.of(address).name, kinds.of(other).name
    return f"{address!r} covers addresses of kind {own} and of kind {theirs} ({other}…), expected one kind"


def check_modes(link: Link) -> None:
    """Check the settle modes of the attach. Raises `Refusal` (AMQP 1.0 2.8.2, 2.8.3)."""
    if link.remote_snd_settle_mode not in (SND_UNSETTLED, SND_SETTLED, SND_MIXED):
        raise Refusal(INVALID_FIELD, f"snd-settle-mode: expected 0, 1 or 2, got {link.remote_snd_settle_mode}")
    if link.remote_rcv_settle_mode not in (RCV_FIRST, RCV_SECOND):
        raise Refusal(INVALID_FIELD, f"rcv-settle-mode: expected 0 or 1, got {link.remote_rcv_settle_mode}")


def _terminus_of(link: Link) -> Terminus | None:
    """The terminus at our end."""
    return link.remote_source if link.is_sender else link.remote_target


def address_of(link: Link) -> str:
    """Address of the node that a client attaches to; empty if the client names none."""
    terminus = _terminus_of(link)
    return address_in(terminus.address or "") if terminus is not None else ""


def address_in(name: str) -> str:
    """The address in a name. Some clients write the URL of a node: amqp://host/topic/x means topic/x."""
    return _AUTHORITY.sub("", name)


def check_names(link: Link) -> None:
    """Check the lengths of the link's name and of its address. Raises `Refusal` if one is too long."""
    for what, name, most in (("link name", link.name, LONGEST_NAME), ("address", address_of(link), LONGEST_ADDRESS)):
        if len(name) > most:
            raise Refusal(INVALID_FIELD, f"{what}: expected {most} characters at most, got {len(name)}")


def is_anonymous(link: Link) -> bool:
    """Whether the link is attached to the anonymous terminus."""
    target = None if link.is_sender else link.remote_target
    return target is not None and not (target.coordinator or target.dynamic or address_of(link))


def is_coordinator(link: Link) -> bool:
    """Whether the client attaches its link to the coordinator of transactions."""
    target = None if link.is_sender else link.remote_target
    return target is not None and target.coordinator


def is_dynamic_source(link: Link) -> bool:
    """Whether the client asks for a dynamic node to receive from."""
    source = link.remote_source if link.is_sender else None
    return source is not None and source.dynamic and not address_of(link)


def checked_address(link: Link) -> str:
    """The address that the client names. Raises `Refusal` if it names none."""
    terminus = _terminus_of(link)
    if terminus is None:
        raise Refusal(NOT_IMPLEMENTED, "the attach has no target, expected one with an address")
    if terminus.coordinator:
        raise Refusal(NOT_IMPLEMENTED, NO_TRANSACTIONS)
    if terminus.dynamic:
        raise Refusal(NOT_IMPLEMENTED, "only a source without an address can be dynamic")
    address = address_of(link)
    if not address:
        raise Refusal(NOT_IMPLEMENTED, "the source has no address, expected one")
    return address


def source_of(link: Link, entries: Iterable[LinkEntry]) -> Terminus:
    """Find the subscriber that an attach without a source continues, and return its source. The subscriber has the
    client's container-id and user, and the name of the link. JMS ends a durable subscription by such an attach. Raises
    `Refusal` if there is no such subscriber, or if there are several at different addresses."""
    container, user = link.connection.remote_container, link.connection.user
    found = [
        entry
        for entry in entries
        if entry.role is Role.SUBSCRIBER and entry.lasts and entry.session is None
        if (entry.identity.container, entry.identity.link, entry.identity.user) == (container, link.name, user)
    ]
    if len(found) != 1:
        why = f"the attach has no source, and the mesh knows {len(found) or 'no'} subscribers {link.name!r} to resume"
        raise Refusal(NOT_FOUND, f"{why}: expected a source with an address")
    (entry,) = found
    lifetime = entry.lifetime
    return Terminus(shown_address(entry.identity.address), lifetime.durable, lifetime.policy, lifetime.timeout)


def lifetime_of(link: Link, longest: int) -> Lifetime:
    """The granted lifetime of the terminus at our end: `never` becomes connection-close, and no timeout exceeds
    `longest` seconds, the limit of the mesh (protocol 1). Raises `Refusal`."""
    asked = _terminus_of(link)
    assert asked is not None
    if asked.durable not in DURABILITIES:
        raise Refusal(INVALID_FIELD, f"durable: expected 0, 1 or 2, got {asked.durable}")
    never = asked.expiry_policy == EXPIRE_NEVER
    timeout = longest if never else min(asked.timeout, longest)
    return Lifetime(timeout, EXPIRE_CONNECTION if never else asked.expiry_policy, asked.durable)


def filters_of(link: Link) -> tuple[Mapping[str, Described], Selector | None, bool]:
    """Returns the filters that the router applies, their selector, and whether they have no-local (AMQP 1.0 3.5.8). The
    answer to the attach names only these filters. The value of no-local has no meaning: it is a list, or the text of
    JMS. Raises `Refusal`."""
    source = link.remote_source if link.is_sender else None
    granted: dict[str, Described] = {}
    selector, no_local = None, False
    for name, asked in source.filters.items() if source is not None else ():
        kind = asked.descriptor if isinstance(asked, Described) and name.isascii() else None
        if kind in (SELECTOR, SELECTOR_CODE) and selector is None:
            granted[name] = asked
            try:
                selector = Selector(asked.value)
            except SelectorError as error:
                raise Refusal(INVALID_FIELD, f"filter {name}: {error}") from None
        elif kind in (NO_LOCAL, NO_LOCAL_CODE) and not no_local:
            granted[name] = Described(kind, asked.value if isinstance(asked.value, str) else [])
            no_local = True
    return granted, selector, no_local


def unsettled_of(link: Link) -> dict[bytes, int] | None:
    """The client's unsettled map; None for a null one."""
    if link.remote_unsettled is None:
        return {} if link.remote_incomplete_unsettled else None
    return {tag: state.state for tag, state in link.remote_unsettled.items()}


def begins_life(link: Link, address: str, generations: Generations) -> bool:
    """Whether a publisher with a timeout attaches without resuming a life that this router knows. Such an attach may
    end another life of the publisher (protocol 7.8). `address`: the link's address in the mesh."""
    target = link.remote_target
    if link.is_sender or link.former is not None or target is None:
        return False
    if not (target.timeout > 0 or target.expiry_policy == EXPIRE_NEVER):
        return False
    identity = LinkIdentity(link.connection.remote_container, link.name, address, link.connection.user)
    generation = link.remote_properties.get(GENERATION)
    return unsettled_of(link) is None or not generations.knows(link_name(identity), generation)


def generation_of(link: Link) -> bytes | None:
    generation = link.remote_properties.get(GENERATION)
    if generation is not None and (not isinstance(generation, bytes) or len(generation) != GENERATION_LENGTH):
        raise Refusal(INVALID_FIELD, f"link property {GENERATION}: expected {GENERATION_LENGTH} bytes")
    return generation


def answers_echoes(link: Link) -> bool:
    """Whether the client declares that it answers echoes. Then only an answer is a sign of its life (protocol 6.6)."""
    return link.remote_properties.get(ANSWERS) is True


def seen_of(link: Link) -> Epoch:
    """The epoch of the link's previous attach, as the client names it; `NOWHERE` if it names none. Raises `Refusal`."""
    epoch = link.remote_properties.get(EPOCH)
    if epoch is None:
        return NOWHERE
    parts = EPOCH_TEXT.fullmatch(epoch) if isinstance(epoch, str) else None
    if parts is None:
        raise Refusal(INVALID_FIELD, f"link property {EPOCH}: expected the value of an earlier attach")
    return Epoch(int(parts[1]), parts[2], int(parts[3]))
