"""What a publisher sends next: rows of the queue, due rows, objects of a snapshot, their values."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
