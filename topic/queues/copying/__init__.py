"""How a leader copies its state to another replica (protocol 13.6)."""
