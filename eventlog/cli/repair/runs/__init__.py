"""What the commands of ``eventlog.cli.repair`` do when they run."""
