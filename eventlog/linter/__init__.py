"""Linter DISPATCH_QUEUE: the replication queue of the Linter DBMS, read and written (spec/linter-queue.md).

================  ========================================================================================
``rows``          a row of the queue, from columns of any order and case, and back
``attributes``    DISPATCH_ATTRS: the columns of the replicated tables, and what their values are
``transactions``  rows in order -> committed transactions -> operations; what is kept for the next read
``codec``         the interface to row images, and the emulator's own, invented one
``reader``        rows -> Change                  ``writer``    Change -> rows
``emulator``      a queue from a seeded workload  ``database``  a queue in a database, polled while it is used
``format``        what the converter knows: files, directories and databases
================  ========================================================================================
"""
