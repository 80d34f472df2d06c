"""What the commands of ``eventlog.cli.inspect`` do when they run."""
