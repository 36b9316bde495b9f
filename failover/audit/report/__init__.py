"""What is said to people and programs: the report, on a terminal, as JSON and as a page; one delivery's story."""
