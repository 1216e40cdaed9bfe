"""``python -m sparsona`` is the command ``sparsona``."""

from sparsona.cli import main

if __name__ == "__main__":
    main()
