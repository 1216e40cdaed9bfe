"""The schema of tables: declared by each owner, applied to its rows, agreed on by all owners."""
