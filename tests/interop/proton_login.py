"""python-qpid-proton over TLS, as its documentation teaches: URL CA [CERTIFICATE KEY]. It receives the messages it
sends.
"""

import sys
from typing import Any

from proton import Message, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import Container

URL, CA, *OWN = sys.argv[1:]


class Client(MessagingHandler):
    sent = False

    def on_start(self, event: Any) -> None:
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(CA)
        if OWN:
            domain.set_credentials(OWN[0], OWN[1], None)
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
        connection = event.container.connect(URL, ssl_domain=domain, reconnect=False)
        event.container.create_receiver(connection, "topic/login")
        event.container.create_sender(connection, "topic/login")

    def on_sendable(self, event: Any) -> None:
        if not self.sent:
            self.sent = True
            event.sender.send(Message("hello"))

    def on_message(self, event: Any) -> None:
        print("received", event.message.body, flush=True)

    def on_accepted(self, event: Any) -> None:
        print("accepted", flush=True)
        event.connection.close()

    def on_transport_error(self, event: Any) -> None:
        print("refused", event.transport.condition.name, flush=True)


Container(Client()).run()
