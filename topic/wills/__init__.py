"""Wills of MQTT clients: messages that the mesh publishes when a client has gone without a goodbye (protocol 15)."""
