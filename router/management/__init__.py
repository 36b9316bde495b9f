"""`$management`: what a router is and does, asked by AMQP Management (docs/management.md)."""
