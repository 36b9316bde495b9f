"""How the leadership of a set moves from router to router (protocol 13.3)."""
