"""A session: its conversation with a model, the turns of it, and what clients are told."""
