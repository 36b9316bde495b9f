"""Where AMQP clients meet the core: a table of nodes by address, and the ends of links."""
