"""What a client keeps to resume its link, how that reaches its store, and what follows from both ends' maps."""
