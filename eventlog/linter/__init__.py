"""Linter DISPATCH_QUEUE: the replication queue of the Linter DBMS, read and written (spec/linter-queue.md).

=================  ====================================================================================
``fields``         dates, addresses, BLOB attributes: values of single columns
``rows``           a row of the queue, from columns of any order and case, and back
``attributes``     DISPATCH_ATTRS: the columns of the replicated tables
``operations``     TYP tables; rows of one operation -> its two parts
``transactions``   rows in order -> committed transactions; what is kept for the next read
``codec``          the interface to row images; ``image`` is the emulator's own, invented one
``reader``         rows -> Change                  ``writer``    Change -> rows
``emulator``       a queue from a seeded workload  ``poller``    a queue in a database, while it is used
``queue_format``   what the converter knows: files, directories and databases
=================  ====================================================================================
"""
