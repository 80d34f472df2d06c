"""A publisher as a process: it works, rests, waits, and shows that it is alive."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
