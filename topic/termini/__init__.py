"""How links attach, move and end, and what home and edge then have to do."""
