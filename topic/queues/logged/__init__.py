"""The entries that replicas of sets write into the delivery log."""
