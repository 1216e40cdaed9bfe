"""Checks of the arguments of models."""

from sparsona.errors import InputError


def image_shape(model: str, shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    """Return `shape` as (channels, height, width); the error names the shapes that `model` takes.

    >>> image_shape("leaf-cnn", (1, 28, 28), smallest=16)
    (1, 28, 28)
    >>> image_shape("leaf-cnn", (1, 8, 8), smallest=16)
    Traceback (most recent call last):
    sparsona.errors.InputError: model 'leaf-cnn' needs images of at least 16x16, not 8x8; use mlp or logistic
    """
    if len(shape) != 3:
        message = f"model {model!r} needs images (channels, height, width), not samples of shape {shape}"
        raise InputError(f"{message}; use mlp or logistic")
    channels, height, width = shape
    if min(height, width) < smallest:
        message = f"model {model!r} needs images of at least {smallest}x{smallest}, not {height}x{width}"
        raise InputError(f"{message}; use mlp or logistic")
    return channels, height, width


def at_least_one(model: str, **numbers: int) -> None:
    """Refuse a width, a vocabulary or a number of outputs below one."""
    for name, number in numbers.items():
        if number < 1:
            raise InputError(f"model {model!r}: {name} must be at least 1, not {number}")
