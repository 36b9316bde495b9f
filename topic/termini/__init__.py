"""Links that come and go: attaches, moves, ends, and what follows from each for home and edge."""
