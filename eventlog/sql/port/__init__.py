"""What a database implements: its types and texts, and an open database and an open log."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
