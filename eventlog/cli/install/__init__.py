"""The commands that install the log, rights and triggers: ``db``, ``grants``, ``triggers``."""
