"""A router's rules for the subscribers attached to it. Nothing here knows an audience."""
