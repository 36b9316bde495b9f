"""Whose turn it is among a client's routers, and how long until then."""

import pytest

from failover.client.attachment.routers import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MAX_ROUTERS,
    RouterAddress,
    Routers,
    parse_url,
)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://a:1", RouterAddress("a", 1)),
        ("amqp://a", RouterAddress("a", 5672)),
        ("amqps://a", RouterAddress("a", 5671, "amqps")),
        ("a:1", RouterAddress("a", 1)),
        ("amqp://[::1]:1", RouterAddress("::1", 1)),
        ("amqp://a:1/", RouterAddress("a", 1)),
    ],
)
def test_a_url_is_a_host_and_a_port(url: str, address: RouterAddress) -> None:
    assert parse_url(url) == address
    assert parse_url(address.url) == address


@pytest.mark.parametrize(
    "url", ["http://a:1", "amqp://", "amqp://a:x", "a:0", "a:65536", "amqp://a:99999", "amqp://[::1", "[]:1"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"not a router's URL: .*, expected amqp://host:port with a port from 1"):
        parse_url(url)


@pytest.mark.parametrize("url", ["a:1/topic/x", "amqp://a:1//", "amqps://a/?x", "a:1?x", "a:1#x"])
def test_what_would_not_be_heeded_behind_a_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"not a router's URL: .*, expected amqp://host:port and nothing behind it"):
        parse_url(url)


@pytest.mark.parametrize("url", ["amqp://u:secret@a:1", "u@a", "amqp://u:sec/secret@a", "u:secret@a:0", "@[::1"])
def test_a_url_with_a_user_is_refused_and_its_password_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="use --user and --password-file") as caught:
        parse_url(url)
    assert url not in str(caught.value) and "secret" not in str(caught.value)


def test_no_urls_are_refused() -> None:
    with pytest.raises(ValueError, match="no router"):
        Routers([])


def test_a_round_goes_without_pauses_and_the_pauses_grow() -> None:
    routers = Routers(["a:1", "b:1"])
    turns = []
    for _ in range(20):
        turns.append((routers.current.host, routers.pause))
        assert routers.at_last == (routers.current.host == "b")
        routers.failed()
    assert turns[:6] == [
        ("a", 0.0),
        ("b", 0.0),
        ("a", FIRST_PAUSE_S),
        ("b", 0.0),
        ("a", 2 * FIRST_PAUSE_S),
        ("b", 0.0),
    ]
    assert turns[-2] == ("a", LONGEST_PAUSE_S)
    routers.succeeded()
    assert routers.pause == 0.0 and not routers.exhausted


def test_servers_named_by_a_router_come_last_and_once() -> None:
    routers = Routers(["a:1"])
    routers.learn([{"network-host": "b", "port": 2}, {"network-host": "a", "port": 1}])
    routers.learn([{"network-host": "b", "port": 2}])
    hosts = []
    for _ in range(4):
        hosts.append(routers.current.host)
        routers.choose_next()
    assert hosts == ["a", "b", "a", "b"]


def test_who_has_left_the_mesh_is_forgotten_but_not_who_was_given() -> None:
    routers = Routers(["a:1", "g:1"])
    routers.learn([{"network-host": "b", "port": 2}, {"network-host": "c", "port": 3}])
    routers.learn([{"network-host": "c", "port": 3}, {"network-host": "d", "port": 4}])
    hosts = []
    for _ in range(4):
        hosts.append(routers.current.host)
        routers.choose_next()
    assert hosts == ["a", "g", "c", "d"]
    assert routers.current.host == "a"


def test_clients_of_a_router_that_dies_go_to_all_the_others() -> None:
    nexts = []
    for number in range(300):
        routers = Routers(["a:1", "b:1", "c:1", "d:1"], f"client {number}")
        routers.succeeded()
        assert routers.current.host == "a", "it is tried first, as it knows best"
        routers.choose_next()
        nexts.append(routers.current.host)
    assert {host: nexts.count(host) > 70 for host in nexts} == {"b": True, "c": True, "d": True}


@pytest.mark.parametrize(
    "servers",
    [
        None,
        "b:2",
        [1],
        [{"port": 2}],
        [{"network-host": ""}],
        [{"network-host": 7}],
        [{"network-host": "b", "port": "x"}],
        [{"network-host": "b", "port": 0}],
        [{"network-host": "b", "port": 99999}],
        [{"network-host": "b", "scheme": "amqps"}],
    ],
)
def test_what_is_not_understood_is_left_out(servers: object) -> None:
    routers = Routers(["a:1"])
    routers.learn(servers)
    routers.choose_next()
    assert routers.current.host == "a"


def test_nobody_is_talked_out_of_tls() -> None:
    routers = Routers(["amqps://a:1"])
    named = [{"network-host": "b", "port": 2}, {"network-host": "c", "scheme": "amqps"}]
    routers.learn(named)
    routers.choose_next()
    assert routers.current == RouterAddress("c", 5671, "amqps")


def test_the_list_is_bounded() -> None:
    routers = Routers(["a:1"])
    routers.learn([{"network-host": "b", "port": port} for port in range(1000)])
    for _ in range(MAX_ROUTERS):
        routers.choose_next()
    assert routers.current.host == "a"
