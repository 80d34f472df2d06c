"""The commands to begin with: ``init``, ``config``, ``demo``."""
