"""WebSocket below AMQP and MQTT: the listeners `amqp-ws` and `mqtt-ws` of a router (docs/clients.md)."""
