"""The state that a client stores so that it can resume its link, and the comparison of the unsettled maps of both
ends."""
