"""What `publish` tells of messages in the end."""

from failover.cli.account import Account
from failover.client.handle import Handle
from router.amqp.format.values import REJECTED, OutcomeDetails


def test_every_message_is_told_of_once() -> None:
    account = Account("topic/x", 10, keeps=True)
    for stored, transferred in ((True, True), (True, False), (False, False)):
        delivery = Handle(lambda: None, b"t", None, b"")
        delivery.stored, delivery.transferred = stored, transferred
        account.begin(delivery)
    assert account.tally() == "1 sent but not answered, 1 still to be sent, 8 never sent"
    assert account.kept == 2


def reject(account: Account, condition: str | None, description: str = "") -> None:
    delivery = Handle(lambda: None, b"t", None, b"")
    account.begin(delivery)
    delivery.detail = OutcomeDetails(REJECTED, condition, description)
    delivery.decide(REJECTED)
    account.end(delivery)


def test_why_messages_were_rejected_is_told_with_how_many() -> None:
    account = Account("topic/x", 3)
    for condition, description in (("amqp:not-found", "no\nlink"), (None, ""), ("amqp:not-found", "no\nlink")):
        reject(account, condition, description)
    assert account.tally() == "3 rejected\n2 rejected: amqp:not-found: no\\nlink\n1 rejected: no reason given"
    assert account.as_json()["rejected"] == {"amqp:not-found: no\nlink": 2, "no reason given": 1}


def test_only_the_first_reasons_are_told_however_many_there_are() -> None:
    account = Account("topic/x", 100)
    for number in range(100):
        reject(account, "amqp:not-found", str(number % 10))
    told = [(f"amqp:not-found: {number}", 10) for number in range(5)]
    assert list(account.rejected.items()) == [*told, ("other reasons", 50)]
