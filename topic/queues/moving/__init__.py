"""How the lead of a set moves (protocol 13.3)."""
