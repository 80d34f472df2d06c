"""The commands that put right what went wrong: ``verify``, ``requeue``, ``resync`` and others."""
