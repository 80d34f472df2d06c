"""The stages of a backlog job: read a part, fold the rows near its ends, write its files; afterwards mark its rows."""
