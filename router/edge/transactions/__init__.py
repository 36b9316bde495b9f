"""Transactions of AMQP clients (AMQP 1.0 part 4; protocol 14.20)."""
