"""Benchmarks. No test runs them, and they neither pass nor fail."""
