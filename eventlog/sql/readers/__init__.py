"""The readers of a log other than its publisher: consumers, their done rows, and where they begin."""
