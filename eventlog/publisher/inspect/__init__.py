"""Answers for people about a log: what was refused, what waits, and why. The package also has the
actions that people ask for: giving up events, and pausing readers.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
