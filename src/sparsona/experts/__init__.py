"""Experts: models that a client trains on its own rows alone. They never travel."""
