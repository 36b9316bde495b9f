"""Entries of the delivery log from replicas of sets."""
