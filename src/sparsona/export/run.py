"""A client's model out of a run directory, in the format that the file's name asks for."""

from __future__ import annotations

from pathlib import Path

from sparsona.errors import InputError
from sparsona.export.files import holds_model, npz_bytes, read_model
from sparsona.export.predict import load_model
from sparsona.files import write_named
from sparsona.method import ClientId
from sparsona.runs.directory import RunDirectory

FORMATS = ("safetensors", "npz", "onnx")


def export_model(run: Path, client: ClientId, to: Path, format: str | None = None) -> None:
    """Write a client's model to `to`; its card comes with it. The format is `format`, or what the name ends in.

    A name that ends in another format than `format` is refused: whoever reads the file goes by its name.
    """
    ending = to.suffix[1:]
    chosen = format or ending
    if chosen not in FORMATS:
        raise InputError(f"cannot write {to}: give --format, or a name that ends in .{', .'.join(FORMATS)}")
    if ending.lower() in FORMATS and ending.lower() != chosen:
        raise InputError(f"cannot write {to} as {chosen}: leave --format out, or give a name that ends in .{chosen}")
    file = RunDirectory(run).need_model(client)
    data = file.read_bytes()
    if chosen == "npz":
        found = read_model(file)
        if "tree" in found.notes:
            raise InputError(f"the model of {client} is not one set of weights: export it as .safetensors")
        data = npz_bytes(found.tensors, found.card)
    if chosen == "onnx":
        from sparsona.export.onnx import onnx_bytes  # its packages are an extra, and slow to import

        data = onnx_bytes(load_model(file))
    write_named(to, data, "a model", holds_model)
