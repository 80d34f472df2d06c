"""Answers for people about a log: what was refused, what waits, and why; and what people ask for:
events that are given up, and readers that are paused.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
