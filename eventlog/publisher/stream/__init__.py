"""Sources that are no log: how their changes are published, and how far they have been."""
