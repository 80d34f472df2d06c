"""The commands that publish: ``publish``, ``backlog``."""
