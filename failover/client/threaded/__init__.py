"""The client for programs that do not use trio, in two forms: one for asyncio (`aio`), and one whose methods block
(`blocking`).

Both use the ordinary publisher and subscriber, which run in a thread with a trio loop of its own (`thread`).
"""
