"""The registry: what tools exist, what each needs, and which of them a session gets."""
