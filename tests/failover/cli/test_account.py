"""What `publish` tells of messages in the end."""

from failover.cli.account import Account
from failover.client.handle import Handle


def test_every_message_is_told_of_once() -> None:
    account = Account("topic/x", 10, keeps=True)
    for stored, transferred in ((True, True), (True, False), (False, False)):
        delivery = Handle(lambda: None, b"t", None, b"")
        delivery.stored, delivery.transferred = stored, transferred
        account.begin(delivery)
    assert account.tally() == "1 sent but not answered, 1 still to be sent, 8 never sent"
    assert account.kept == 2
