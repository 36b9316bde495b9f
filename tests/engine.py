"""Makes faults of the AMQP engine fail a test. In production a fault only ends its connection."""

from router.amqp import connection
from router.amqp.connection import fault_of
from router.amqp.format.errors import AmqpError


def _let_through(error: Exception) -> AmqpError:
    if isinstance(error, AmqpError):
        return error
    raise error


def let_faults_through() -> None:
    """From now on, let a fault of the engine propagate out of its connection."""
    connection.fault_of = _let_through


def end_connections() -> None:
    """From now on, let a fault of the engine end its connection, as in production."""
    connection.fault_of = fault_of
