"""What a database implements: its types and texts, and an open database and an open log."""
