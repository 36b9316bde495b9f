"""Works on the frames between proton and the socket: adds the fields that proton cannot write, and reads the fields
that proton ignores."""
