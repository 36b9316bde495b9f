"""Strikes faults at a running mesh on purpose. An application: only the command line imports it."""
