"""The user's own modules, for nodes that do not have them: sent as text, and written to a folder on Python's path."""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing import spawn
from pathlib import Path

INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Sources:
    """Modules by their path below the folder; `main` is the user's script, if the payload needs it."""

    modules: Mapping[str, str] = field(default_factory=dict)
    main: str = ""

    def install(self) -> None:
        """Make these modules importable in a worker, before installed ones. The folder stays as long as the process."""
        folder = Path(tempfile.mkdtemp(prefix="sparsona-"))
        for name, text in self.modules.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        sys.path.insert(0, str(folder))
        if self.main:
            script = folder / "__main__script.py"
            script.write_text(self.main, encoding="utf-8")
            spawn.prepare({"init_main_from_path": str(script)})


def loaded_sources(payload: bytes) -> Sources:
    """Return the loaded modules that belong to no package, and the script, if the payload needs it."""
    out = {}
    for name, module in sorted(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "")
        if file.suffix == ".py" and name.partition(".")[0] not in SKIPPED and _is_own(file):
            path = name.replace(".", "/")
            out[f"{path}/__init__.py" if file.name == "__init__.py" else f"{path}.py"] = file.read_text("utf-8")
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or "")
    needed = b"__main__" in payload and script.suffix == ".py"
    return Sources(out, script.read_text("utf-8") if needed else "")


SKIPPED = ("__main__", "__mp_main__", "sparsona")


def _is_own(file: Path) -> bool:
    """True if a file belongs neither to Python nor to an installed package."""
    standard = Path(sysconfig.get_paths()["stdlib"])
    return file.is_file() and standard not in file.parents and not set(INSTALLED) & set(file.parts)
