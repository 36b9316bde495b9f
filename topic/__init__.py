"""The topic core: delivery records, and the rules by which each subscriber gets each message exactly once (protocol
sections 2 to 8).

The package consists of pure state machines. They take events and return actions, and time and clock are arguments. It
knows neither sockets, nor trio, nor proton.
"""
