"""Linter DISPATCH_QUEUE: the replication queue of the Linter DBMS, read and written
(spec/linter-queue.md).
"""
