"""The rules of a router for its local publishers: which subscribers a delivery awaits, and when its publisher gets an
outcome."""
