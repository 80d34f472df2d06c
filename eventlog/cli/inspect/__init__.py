"""The commands that change nothing: ``status``, ``top``, ``errors``, ``explain`` and others."""
