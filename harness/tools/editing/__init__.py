"""Exact replacement in the bytes of a file, as pure functions: no file is opened here."""
