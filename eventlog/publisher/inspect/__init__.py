"""Answers for people about a log: what was refused, what waits, and why; and events that are given
up by hand.
"""
