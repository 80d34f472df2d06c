"""The readers of a log other than its publisher: consumers, their done rows, where they begin."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
