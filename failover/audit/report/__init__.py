"""The output of the audit: the report, on a terminal, as JSON and as a page; and the story of one delivery."""
