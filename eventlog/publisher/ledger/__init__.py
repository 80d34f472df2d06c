"""Which rows a reader of a log has done, and the entries that record what it is doing."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
