"""Flower as a carrier: SuperLink and SuperNodes as child processes, the submission, and the scripts Flower starts."""
