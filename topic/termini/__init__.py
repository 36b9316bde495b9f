"""Attaches, moves and ends of links, with their consequences for home and edge."""
