"""Between proton and the socket: what proton cannot say or hear is added to the frames and read from them."""
