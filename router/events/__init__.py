"""Events of a router. Code that logs an event names its kind, and the router keeps the event for clients
(docs/management.md, Events)."""
