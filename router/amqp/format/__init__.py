"""How AMQP 1.0 is written: types, values, frames, messages, maps. Nothing of proton, and nothing of a connection."""
