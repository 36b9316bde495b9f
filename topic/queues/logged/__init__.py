"""What a replica of a set tells the delivery log."""
