"""Everything in SQL, whatever the database.

==============  ======================================================================================================
``connection``  from a URL to sessions, and what their errors mean; ``embedded`` is a PostgreSQL of its own
``database``    what differs between databases as such: sessions, names, values, the catalogue, a log's tables
``dialect``     what a log asks of its database: read, mark, query back, resync, in parts; in terms of ``windows``
``dialects``    the databases, a package each
``statements``  what statements are made of, the files that they stand in, how they run
``log_table``   a log and its companions: by name, as it will be made, or found and checked
``rows``        its rows and the lines of its companions, by statements that every database understands
``resync``      objects written into it once more
``triggers``    what is watched, what its tables log, and what is to be done to have that
``doctor``      what is asked of a database, and what is wrong with a log
``migrations``  what makes a log, by eventlog's commands or in a user's own Alembic tree
==============  ======================================================================================================
"""
