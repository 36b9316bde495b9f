"""The facts that a router shows about itself: one table of entities and their attributes. All surfaces read this table:
`$status`, `$management`, `/metrics`, the console and the commands."""
