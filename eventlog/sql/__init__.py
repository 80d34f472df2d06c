"""Everything in SQL, whatever the database.

==============
======================================================================================================
``connection`` from a URL to sessions, and their errors; ``embedded`` is a PostgreSQL in a directory
``database`` the differences between databases as such: sessions, names, values, the catalogue, a
log's tables ``dialect`` a log's operations on its database: read, mark, query back, resync, in
parts; in terms of ``windows`` ``dialects`` the databases, a package for each ``statements`` the
parts of statements, the files that they stand in, how they run ``log_table`` a log and its
companions: by name, as a new log has them, or found and checked ``rows`` a log's rows and the lines
of its companions, by statements that every database understands ``resync`` objects written into the
log once more ``triggers`` watches, the rows that their tables log, and the plan to have the
triggers for that ``doctor`` the questions to a database, and the findings about a log
``migrations`` the making of a log, by eventlog's commands or in a user's own Alembic tree
==============
======================================================================================================
"""
