"""Models that leave a run: files that carry everything a prediction from raw rows needs."""
