"""The shell around the cores: AMQP edges, links between routers, configuration, launcher, command line."""
