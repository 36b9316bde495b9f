"""Selectors: a subscriber's conditions on the messages that it wants, written in a subset of SQL-92.

The filter `apache.org:selector-filter:string` has such a condition, as in JMS and the AMQP brokers of Apache
(docs/clients.md). This package only parses and evaluates conditions; `topic.edge.filters` applies the results.
"""
