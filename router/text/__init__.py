"""Texts for people: from strangers, made fit for terminals and logs; tables of any width. Imports nothing of ours."""
