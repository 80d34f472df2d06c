"""What the functions of a publisher work with: options, counters, and the publisher's observer."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
