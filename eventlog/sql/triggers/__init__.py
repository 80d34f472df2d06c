"""Triggers: what a watch is, what its tables log, and what is to be done to have that (spec/triggers.md)."""
