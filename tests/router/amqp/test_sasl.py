"""The SASL layer (AMQP 1.0 5.3) by itself: two ends, and frames as strangers read them."""

from router.amqp.format.codec import Described, Symbol, decode
from router.amqp.frames.sasl import AMQP_HEADER, MECHANISMS, SASL_HEADER, SaslClient, SaslServer


def test_the_server_offers_an_array_of_mechanisms() -> None:
    """AMQP allows a lone symbol, too, but there are clients (RabbitMQ's) that know only arrays."""
    server = SaslServer()
    server.receive(SASL_HEADER)
    offer = server.out[len(SASL_HEADER) :]
    assert decode(offer, 8)[0] == Described(MECHANISMS, [[Symbol("ANONYMOUS")]])
    assert int.from_bytes(offer[:4], "big") == len(offer)


def test_both_ends_come_to_terms() -> None:
    client, server = SaslClient(), SaslServer()
    while not (client.done and server.done):
        to_server, client.out = client.out, b""
        assert server.receive(to_server) == b""
        to_client, server.out = server.out, b""
        assert client.receive(to_client) == b""
    assert server.receive(AMQP_HEADER) == AMQP_HEADER
