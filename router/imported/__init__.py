"""Makes a topology out of configurations of other routers: qpid-dispatch and skupper-router."""
