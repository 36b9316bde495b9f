"""Messages as rows of the state of a set, whose bodies may be on the disk alone (protocol 14.13)."""
