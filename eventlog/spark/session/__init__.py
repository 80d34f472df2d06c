"""A session of Spark and what every job on it uses: workers, arguments, Arrow columns."""
