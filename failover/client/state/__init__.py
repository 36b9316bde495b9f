"""What a client keeps so that it can resume its link: the stored state, and the comparison of the unsettled maps of
both ends."""
