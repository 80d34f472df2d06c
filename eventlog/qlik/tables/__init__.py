"""Qlik change tables, in files and in a database (formats/qlik.md 1, 4)."""
