"""Benchmarks: never run by the tests, never a pass or a fail."""
