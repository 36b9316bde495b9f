"""`oncemesh bench`: a load of a user's own, and how long its messages take. One process: it measures itself, too."""
