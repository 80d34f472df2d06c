"""What the commands do when they run, one module per module of commands.

A command's module in ``eventlog.cli`` has its options and its help, and loads no SQLAlchemy. It
imports its module here when the command runs.
"""
