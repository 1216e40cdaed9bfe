"""Write the goldens anew: `python tests/golden/write.py`.

Only on purpose: bytes that change mean that old frames can no longer be read, hence a new format version.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "wire"))


def main() -> None:
    from wire_cases import GOLDEN, cases

    GOLDEN.mkdir(exist_ok=True)
    for old in GOLDEN.glob("*.hex"):
        old.unlink()
    for case in cases():
        text = case.frame.data.hex()
        lines = [text[i : i + 100] for i in range(0, len(text), 100)]
        (GOLDEN / f"{case.name}.hex").write_text("\n".join(lines) + "\n")
        print(f"{case.name}: {len(text) // 2} bytes")


if __name__ == "__main__":
    main()
