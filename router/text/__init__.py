"""Text for people: strangers' text, escaped for terminals and logs; tables of any width. Imports no other package of
this project."""
