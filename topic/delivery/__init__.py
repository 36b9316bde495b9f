"""One delivery at one router: its record, the stream that orders it, its outcomes. Not when any of that changes."""
