"""Answers for people about a log: what was refused, what waits, and why. Also the actions that
people ask for: give up events, pause readers.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
