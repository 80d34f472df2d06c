"""What the configuration declares, opened: classes, triggers, log, sink, format; and the watchers
that see whether it still holds.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
