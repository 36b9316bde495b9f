"""A fault of the AMQP engine ends its connection in production. In tests it fails the test."""

from router.amqp import connection
from router.amqp.connection import fault_of
from router.amqp.format.errors import AmqpError


def _let_through(error: Exception) -> AmqpError:
    if isinstance(error, AmqpError):
        return error
    raise error


def let_faults_through() -> None:
    """From now on such a fault propagates out of the connection."""
    connection.fault_of = _let_through


def end_connections() -> None:
    """From now on such a fault ends its connection, as in production."""
    connection.fault_of = fault_of
