"""The requests for pages of messages, which routers make for clients that browse queues."""
