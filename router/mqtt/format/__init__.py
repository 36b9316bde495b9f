"""The encoding of MQTT: its values, fields and packets. The encoding knows nothing of connections or sessions."""
