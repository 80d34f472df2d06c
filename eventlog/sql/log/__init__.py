"""The rows of a log and of its internal tables, by statements that every database understands."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
