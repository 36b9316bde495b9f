"""`$management`: the state and the operations of a router, by AMQP Management (docs/management.md)."""
