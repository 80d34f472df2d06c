"""From a URL to a session, and to the log in its database."""
