"""How MQTT is written: words, fields and packets. It knows nothing of connections or sessions."""
