"""Strikes faults at a running mesh on purpose. This package is an application: only the command line imports it."""
