"""Between proton and the socket: adds to outgoing frames what proton cannot say, and reads what proton cannot hear."""
