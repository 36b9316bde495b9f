"""What the different selectors of one user may cost, as routers ask all of them about each message."""

from router.amqp.format.codec import Described
from router.amqp.format.errors import RESOURCE_LIMIT
from router.amqp.format.values import SELECTOR, ErrorCondition
from router.amqp.proton.link import Link
from router.edge.selector.selector import Selector
from router.edge.selector.tokens import LONGEST
from router.mesh.config import Limits
from tests.fuzz.mesh import FuzzMesh, GoodClient


class Selecting(GoodClient):
    """It subscribes with selectors, and hears which of its links are refused."""

    def __init__(self) -> None:
        super().__init__(FuzzMesh("a", "b").routers["a"], "selecting")
        self.router.guests.append(self)
        self.refused: list[tuple[str, str]] = []

    def subscribe(self, name: str, selector: str) -> Link:
        link = self.engine.receiver(name, "topic/x", filters={"selector": Described(SELECTOR, selector)})
        self.router.mesh.flow()
        return link

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        if condition is not None:
            self.refused.append((link.name, condition.name))


def selector(number: int) -> str:
    return f"x LIKE '%_{'a' * 1000}' OR x = {number}"


def test_selectors_of_a_user_are_bounded_by_what_they_cost() -> None:
    client, room = Selecting(), Limits().selectors // Selector(selector(0)).cost
    links = [client.subscribe(str(number), selector(number)) for number in range(room)]
    assert client.refused == []
    client.subscribe("more", selector(room))
    assert client.refused == [("more", RESOURCE_LIMIT)]
    client.subscribe("the same", selector(0))
    links[1].detach()
    client.router.mesh.flow()
    client.subscribe("another", selector(room))
    assert client.refused == [("more", RESOURCE_LIMIT)]


def test_a_selector_costs_its_terms_and_the_characters_of_its_patterns() -> None:
    assert Selector("device = 'sensor'").cost == 3
    assert Selector("x LIKE 'a_%' ESCAPE '!' OR x IN (1, 2)").cost == 2 + 3 + 1 + 4
    dearest = Selector("x LIKE '" + "_" * (LONGEST - len("x LIKE ''")) + "'")
    assert dearest.cost <= LONGEST <= Limits().selectors
