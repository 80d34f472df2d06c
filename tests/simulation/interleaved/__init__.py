"""PostgreSQL, interleaved: real sessions take turns statement by statement, as in PostgreSQL's own
isolation tester.

``stepping`` makes a session stop before each statement. ``server`` is the database. ``writers`` and
``readers`` are the sessions: transactions of an application, and the publisher, a consumer and
``requeue`` with their real code. ``leaves`` has ``purge`` of a partitioned log. ``schedules`` draws
who does what in which order, ``world`` runs it, and ``audit`` judges. ``interleave.py`` beside this
package is the command line.
"""
