"""The configuration: options, settings, files, environment."""
