"""The listener `http`: metrics, health and the console of a router (docs/monitoring.md)."""
