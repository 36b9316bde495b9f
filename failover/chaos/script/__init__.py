"""A chaos script: its words, its reader, and the timeline that the planner makes of it and a seed. Nothing strikes
here."""
