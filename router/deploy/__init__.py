"""Files that run a mesh on its hosts, for systemd and for containers, made from its topology."""
