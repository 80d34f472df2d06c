"""Linter DISPATCH_QUEUE: the replication queue of the Linter DBMS, read and written
(formats/linter-queue.md).
"""
