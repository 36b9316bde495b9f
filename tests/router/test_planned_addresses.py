"""What a plan says of where routers are: what every router of the mesh takes (protocol 11)."""

import pytest

from linkstate.plan.names import in_ascii, is_address
from router.mesh.quantities import Address


@pytest.mark.parametrize("text", ["127.0.0.1:5672", "[::1]:1", "[fe80::1%eth0]:1", "router-a.example.org:65535", "h:0"])
def test_an_address_is_said_as_it_is_written(text: str) -> None:
    assert in_ascii(str(Address.parse(text))) == text
    assert is_address(text)


def test_a_name_in_another_script_is_said_as_in_dns() -> None:
    said = in_ascii(str(Address.parse("é.example:5672")))
    assert said == "xn--9ca.example:5672"
    assert is_address(said)
    assert Address.parse(said).host == "xn--9ca.example"
