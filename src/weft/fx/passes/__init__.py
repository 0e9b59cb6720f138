"""Passes over graphs: shapes of results, and splitting into parts."""
