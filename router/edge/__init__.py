"""The edge for AMQP clients: a table of nodes by address, and the ends of links."""
