"""Export a client's model from a run directory or from its owner's file, in the format of the file's name."""

from pathlib import Path

from sparsona.errors import InputError
from sparsona.export.files import holds_model, npz_bytes, read_model
from sparsona.export.portable import lightgbm_bytes, portable
from sparsona.export.predict import load_model
from sparsona.files import write_named
from sparsona.method import ClientId
from sparsona.runs.directory import RunDirectory

FORMATS = ("safetensors", "npz", "onnx", "txt")


def export_model(run: Path, client: ClientId, to: Path, format: str | None = None, base: str = "") -> None:
    """Write a client's model with its card to `to`, in `format` or in the format of the name.

    `run` is a run directory, or the .safetensors file that a client of a network has.

    `base` is the file of the net's frozen weights; ONNX needs it, other formats hold the trained part.

    A name of another format than `format` is refused, because programs read the file by its name.
    """
    ending = to.suffix[1:]
    chosen = format or ending
    if chosen not in FORMATS:
        raise InputError(f"cannot write {to}: give --format, or a name that ends in .{', .'.join(FORMATS)}")
    if ending.lower() in FORMATS and ending.lower() != chosen:
        raise InputError(f"cannot write {to} as {chosen}: leave --format out, or give a name that ends in .{chosen}")
    file = run if run.is_file() else RunDirectory(run).need_model(client)
    if file == run and client not in ("", load_model(run).card.client):
        raise InputError(f"{run} is the model of {load_model(run).card.client}, not of {client}: leave --client out")
    data = file.read_bytes()
    if chosen == "npz":
        found = read_model(file)
        tensors, experts = portable(load_model(file)) if "tree" in found.notes else (found.tensors, [])
        data = npz_bytes(tensors, found.card, experts)
    if chosen == "txt":
        data = lightgbm_bytes(load_model(file))
    if chosen == "onnx":
        from sparsona.export.onnx import onnx_bytes  # its packages are an extra, and slow to import

        data = onnx_bytes(load_model(file, base=base))
    write_named(to, data, "a model", holds_model)
