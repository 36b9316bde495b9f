"""The shell around the cores: it has the AMQP edges, the links between routers, the configuration, the launcher, and
the command line."""
