"""Prepares text for people: escapes strangers' text for terminals and logs, and makes tables of any width. Imports no
other package of this project."""
