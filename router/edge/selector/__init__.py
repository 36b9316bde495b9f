"""Selectors: a subscriber's conditions on the messages that it wants, in a subset of SQL-92's.

`apache.org:selector-filter:string`, as JMS and the AMQP brokers of Apache have it: docs/clients.md. Pure.
`topic.edge.filters` applies the results.
"""
