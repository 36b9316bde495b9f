"""A chaos script: the words that it can use, the reader of its file, and the planner, which makes a timeline from the
script and a seed. Nothing in this package strikes."""
