"""One delivery at one router: its record, its stream and its outcomes. Other packages decide when these change."""
