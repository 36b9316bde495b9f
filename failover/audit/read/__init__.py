"""Reads log files and chaos.json, and turns their entries into rows and columns. This package judges nothing."""
