"""What the commands of ``eventlog.cli.publish`` do when they run."""
