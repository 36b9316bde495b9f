"""Commands and options about who may come in: users, certificates, what a client shows."""
