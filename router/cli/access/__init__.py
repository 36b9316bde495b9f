"""Commands and options for access control: users, certificates, and the credentials of a client."""
