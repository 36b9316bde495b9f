"""The clients of a mesh, which resume their links; runs that break a mesh; the audit; and the commands for all of
these."""
