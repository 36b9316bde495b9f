"""The facts to show of a router: one table of entities and their attributes, which all surfaces read."""
