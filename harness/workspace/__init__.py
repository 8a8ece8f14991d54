"""The workspace: files, version control, execution and discovery of one host, behind sessions."""
