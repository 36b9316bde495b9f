"""Faults struck at a running mesh on purpose. An application: nothing but the command line imports it."""
