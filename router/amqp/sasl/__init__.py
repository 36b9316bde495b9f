"""SASL (AMQP 1.0 5.3), in front of proton, which never sees a frame of it."""
