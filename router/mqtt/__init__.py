"""Clients that speak MQTT 3.1.1 or 5: the same topics, by another edge (docs/mqtt.md)."""
