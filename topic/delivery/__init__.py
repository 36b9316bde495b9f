"""One delivery at one router: its record, its stream, its outcomes. Other packages decide when any of these change."""
