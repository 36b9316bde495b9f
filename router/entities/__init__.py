"""What there is to see of a router: one table of entities and their attributes, which all that show a router read."""
