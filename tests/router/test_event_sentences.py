"""What an event says to people."""

from typing import Any

import pytest

from router.events.kind import EventKind
from router.events.sentence import sentence

LINK = {"role": "subscriber", "container": "reader", "link": "subscribe", "address": "topic/news", "user": ""}


@pytest.mark.parametrize("kind", EventKind)
@pytest.mark.parametrize("fields", [{}, LINK])
def test_each_kind_has_words_whatever_fields_it_has(kind: EventKind, fields: dict[str, Any]) -> None:
    assert sentence({"kind": kind.value, **fields})


def test_a_link_is_named_with_its_address_and_user() -> None:
    moved = {"kind": "moved", **LINK, "former": "a"}
    assert sentence(moved) == "subscriber reader/subscribe on topic/news moves here from router a"
    assert "on topic/news of user ann moves" in sentence(moved | {"user": "ann"})


def test_a_refused_attach_names_the_link() -> None:
    refused = {"kind": "refused", **LINK, "origin": "127.0.0.1:9", "condition": "amqp:not-found", "why": "no node 'x'"}
    assert (
        sentence(refused)
        == "subscriber reader/subscribe on topic/news refused, 127.0.0.1:9: amqp:not-found: no node 'x'"
    )


def test_why_is_said_where_it_is_known() -> None:
    lost = {"kind": "contact-lost", "peer": "b"}
    assert sentence(lost) == "lost contact with router b"
    assert sentence(lost | {"why": "no path"}) == "lost contact with router b: no path"


def test_a_replica_set_is_named() -> None:
    assert sentence({"kind": "leading", "set": "q0", "term": 7}) == "leads replica set q0, in term 7"
    alone = {"kind": "leaderless", "set": "q0", "why": "it has not begun"}
    assert sentence(alone) == "replica set q0 has no leader: it has not begun"


def test_a_kind_of_a_later_version_is_named() -> None:
    assert sentence({"kind": "danced"}) == "danced"
    assert sentence({"kind": "danced", "text": "it danced"}) == "it danced"
