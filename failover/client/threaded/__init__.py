"""Faces of the client for programs without trio: one for asyncio (`aio`), and one that blocks (`blocking`).

Both use the same publisher and subscriber, which run in a thread with a trio loop of its own (`thread`).
"""
