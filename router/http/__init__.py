"""The listener `http`: metrics, health and the console of a router, for who looks at it (docs/monitoring.md)."""
