"""Names (protocol 2): pure functions of what they name, safe for clients that decode tags as text."""

from hypothesis import given
from hypothesis import strategies as st

from topic.identity import Epoch, KeyMaker, LinkIdentity, link_name, new_generation

TEXT = st.text(max_size=20)
IDENTITIES = st.builds(LinkIdentity, TEXT, TEXT, TEXT, TEXT)
GENERATIONS = st.binary(min_size=8, max_size=8)
TAGS = st.binary(max_size=40)


@given(IDENTITIES, GENERATIONS, TAGS)
def test_a_key_is_a_pure_function_of_32_ascii_bytes(identity: LinkIdentity, generation: bytes, tag: bytes) -> None:
    maker = KeyMaker(link_name(identity), generation)
    key = maker.key(tag)
    assert key == maker.key(tag) == KeyMaker(link_name(identity), generation).key(tag)
    assert (len(key), key.isascii()) == (32, True)
    assert key.startswith(link_name(identity))


@given(GENERATIONS, GENERATIONS, TAGS, TAGS)
def test_keys_of_other_tags_or_lives_differ(one: bytes, other: bytes, tag: bytes, another: bytes) -> None:
    keys = KeyMaker(b"publisher123", one), KeyMaker(b"publisher123", other)
    assert (keys[0].key(tag) == keys[0].key(another)) == (tag == another)
    assert (keys[0].key(tag) == keys[1].key(tag)) == (one == other)


@given(IDENTITIES, IDENTITIES)
def test_names_tell_identities_apart_however_their_parts_are_cut(one: LinkIdentity, other: LinkIdentity) -> None:
    assert (link_name(one) == link_name(other)) == (one == other)
    assert link_name(LinkIdentity("ab", "c", "")) != link_name(LinkIdentity("a", "bc", ""))


@given(st.lists(st.builds(Epoch, st.integers(0, 1 << 63), TEXT, st.integers(1, 1 << 40)), unique=True))
def test_every_epoch_starts_another_generation(epochs: list[Epoch]) -> None:
    assert len({new_generation(epoch) for epoch in epochs}) == len(epochs)


def test_nobody_has_the_names_of_another_user() -> None:
    """Who has not proven who he is has none of a user's, whatever he calls himself."""
    names = [LinkIdentity("c", "l", "a"), LinkIdentity("c", "l", "a", "alice"), LinkIdentity("c", "l", "a", "bob")]
    assert len(set(map(link_name, names))) == 3
    assert names[0].parts() == {"container": "c", "link": "l", "address": "a"}
    assert names[1].parts() == {"container": "c", "link": "l", "address": "a", "user": "alice"}
