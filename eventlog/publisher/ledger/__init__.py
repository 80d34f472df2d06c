"""Which rows a reader of a log has done, and the entries that record what it is doing."""
