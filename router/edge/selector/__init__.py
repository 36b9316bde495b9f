"""Selectors: what subscribers say of the messages that they want, in a subset of SQL-92's conditions.

`apache.org:selector-filter:string`, as JMS and the AMQP brokers of Apache have it: docs/clients.md. Pure. What
follows from a selector's answer is not here, but in `topic.edge.filters`.
"""
