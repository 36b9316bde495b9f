"""What topic cores say to each other, as bytes. Nothing here decides anything."""
