"""The encodings of AMQP 1.0: types, values, frames, messages, maps. Nothing of proton, and nothing of a connection."""
