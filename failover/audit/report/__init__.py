"""The audit's output: the report, on a terminal, as JSON and as a page; and one delivery's story."""
