"""What a router process does as the plan of its mesh changes (protocol 11): whom it dials and names, when it ends."""
