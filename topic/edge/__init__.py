"""A router's rules for its local subscribers. Nothing here knows an audience."""
