"""The topic core: delivery records and the rules that make a topic exactly-once (protocol sections 2 to 8).

Pure state machines: events in, actions out, time and clock as arguments. Nothing here knows sockets, trio or proton.
"""
