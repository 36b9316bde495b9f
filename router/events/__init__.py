"""Events of a router: each has a kind, the log's caller names it, and the router keeps it for clients
(docs/management.md, Events)."""
