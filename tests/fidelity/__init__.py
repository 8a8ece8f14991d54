"""The embedded engine beside the real one: the same scenarios, everything observable compared."""
