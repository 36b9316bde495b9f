"""The state that a client keeps to resume its link: its store, and the comparison of both ends' maps."""
