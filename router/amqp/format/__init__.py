"""The encodings of AMQP 1.0: types, values, frames, messages and maps. It uses neither proton nor a connection."""
