"""What runs a mesh on its hosts: files for systemd and for containers, made from its topology."""
