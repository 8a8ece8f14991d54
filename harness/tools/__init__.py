"""The tools of the engine, one file a family."""
