"""What keeps a log small: purges, leaves, and how long rows are kept."""
