"""The commands that need no log: ``convert``, ``decode``."""
