"""Makes a topology of the configuration of other routers: qpid-dispatch and skupper-router."""
