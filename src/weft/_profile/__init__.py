"""Profiles: what is noted while one runs, and what is made of it."""
