"""``images:PATH``: the user's own images, one folder per client with one folder per class.

``photos/berlin/cat/1.png`` is an image of the class cat that berlin has. All images must have the same size. They are
read as RGB, or as one channel where all are grey.
"""

from pathlib import Path

import numpy as np

from sparsona.data._store import Store, source
from sparsona.data.dataset import Array
from sparsona.data.folder import entries
from sparsona.data.schema.table import Table, Tables
from sparsona.errors import DataError

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")
GREY = ("1", "L")


@source(about="your own images: images:PATH with one folder a client and one folder a class in it", licence="yours")
def load(store: Store, path: Path) -> Tables:
    """The images of every client."""
    path = path.expanduser()
    found = {folder: _of_client(folder) for folder in _inner(path, "client")}
    images = [image for own in found.values() for image, _ in own]
    size = images[0].shape[:2]
    for folder, own in found.items():
        for image, file in own:
            if image.shape[:2] != size:
                shown = " and ".join(f"{width} x {height}" for height, width in (size, image.shape[:2]))
                raise DataError(f"{folder}: {file} differs in size from the others ({shown}); resize all alike")
    colour = any(image.ndim == 3 for image in images)
    return Tables(path.resolve().name, tuple(_table(folder, own, colour) for folder, own in found.items()), owned=True)


def _table(folder: Path, own: list[tuple[Array, Path]], colour: bool) -> Table:
    block = np.stack([_channels(image, colour) for image, _ in own])
    labels = np.array([file.parent.name for _, file in own], np.str_)
    return Table(folder.name, str(folder), {"label": labels}, block, target=("label",), raw=frozenset({"label"}))


def _channels(image: Array, colour: bool) -> Array:
    """The image with its channels first."""
    if not colour:
        return image[None]
    return np.moveaxis(image, 2, 0) if image.ndim == 3 else np.repeat(image[None], 3, axis=0)


def _of_client(folder: Path) -> list[tuple[Array, Path]]:
    found = []
    for inner in _inner(folder, "class"):
        for file in entries(inner, "images"):
            if file.suffix.lower() not in ENDINGS:
                raise DataError(f"{file} is no image ({', '.join(ENDINGS)}); move it out of the folder")
            found.append((_read(file), file))
    if not found:
        raise DataError(f"{folder} holds no images; put them into one folder a class: {folder.name}/CLASS/1.png")
    return found


def _inner(path: Path, what: str) -> list[Path]:
    found = entries(path, "images")
    for one in found:
        if not one.is_dir():
            raise DataError(f"{one} is no folder; {path} holds one folder a {what}")
    if not found:
        raise DataError(f"{path} is empty; put one folder a {what} there")
    return found


def _read(file: Path) -> Array:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("L" if image.mode in GREY else "RGB"))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DataError(f"{file} cannot be read as an image ({error}); write it anew or leave it out") from None
