"""Failover: the rules of resuming, and on top of them the clients that resume and the audit."""
