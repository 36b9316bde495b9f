"""Text for people: strangers' text, escaped for terminals and logs; tables of any width. Imports nothing of ours."""
