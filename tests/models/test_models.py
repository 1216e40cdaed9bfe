"""The models: exact weight counts, any memory format, any image size, errors in one line."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sparsona.errors import InputError
from sparsona.models import MODELS
from sparsona.registry import bind

COUNTS = [
    ("logistic", (54,), 7, 385),
    ("mlp", (1, 8, 8), 10, 3_760),
    ("convnet2", (1, 28, 28), 10, 34_826),
    ("cnn-mcmahan", (1, 28, 28), 10, 1_663_370),
    ("spfl-cnn", (1, 28, 28), 10, 431_080),
    ("spfl-cnn", (1, 28, 28), 47, 449_617),
    ("spfl-cnn", (3, 32, 32), 100, 702_170),
    ("lenet5", (1, 28, 28), 26, 439_096),
    ("leaf-cnn", (1, 28, 28), 10, 2_171_786),
    ("leaf-cnn", (1, 28, 28), 62, 2_278_334),
    ("lenet-cifar", (3, 32, 32), 10, 256_830),
    ("cnn-cifar100", (3, 32, 32), 100, 3_537_444),
    ("vgg11-gn", (3, 32, 32), 10, 9_231_114),
    ("resnet18-gn", (3, 32, 32), 100, 11_220_132),
    ("text-embedding", (256,), 2, 160_034),
]
SHAPES = {name: (shape, outputs) for name, shape, outputs, _ in COUNTS}
IMAGES = sorted(name for name, (shape, _) in SHAPES.items() if len(shape) == 3)
CONVOLUTIONAL = [name for name in IMAGES if name != "mlp"]
SMALLEST = {
    "convnet2": 10,
    "cnn-mcmahan": 4,
    "spfl-cnn": 16,
    "lenet5": 16,
    "leaf-cnn": 16,
    "lenet-cifar": 16,
    "cnn-cifar100": 16,
    "vgg11-gn": 32,
    "resnet18-gn": 8,
}


def build(name: str, shape: tuple[int, ...], outputs: int, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return MODELS.get(name)(shape, outputs, **options)


def batch(shape: tuple[int, ...], size: int, name: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    if name == "text-embedding":
        return torch.randint(10_000, (size, *shape), generator=generator)
    return torch.randn(size, *shape, generator=generator)


def test_every_registered_model_is_counted() -> None:
    assert set(MODELS.names()) >= set(SHAPES)
    assert set(SMALLEST) == set(CONVOLUTIONAL)


@pytest.mark.parametrize(("name", "shape", "outputs", "weights"), COUNTS)
def test_weight_count(name: str, shape: tuple[int, ...], outputs: int, weights: int) -> None:
    with torch.device("meta"):
        model = MODELS.get(name)(shape, outputs)
    assert sum(p.numel() for p in model.parameters()) == weights
    assert not list(model.buffers())


@pytest.mark.parametrize("name", SHAPES)
def test_logits_of_a_batch(name: str) -> None:
    shape, outputs = SHAPES[name]
    model = build(name, shape, outputs)
    logits = model(batch(shape, 3, name))
    assert logits.shape == (3, outputs)
    assert logits.dtype == torch.float32
    assert torch.isfinite(logits).all()
    assert (logits < 0).any()


@pytest.mark.parametrize("name", SHAPES)
def test_the_head_is_the_last_linear_layer(name: str) -> None:
    shape, outputs = SHAPES[name]
    with torch.device("meta"):
        model = MODELS.get(name)(shape, outputs)
    linear = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    head, layer = linear[-1]
    assert layer.out_features == outputs
    assert "." not in head
    assert [n for n, _ in model.named_parameters()][-2:] == [f"{head}.weight", f"{head}.bias"]


@pytest.mark.parametrize("name", IMAGES)
def test_channels_last_gives_the_same(name: str) -> None:
    shape, outputs = SHAPES[name]
    model = build(name, (3, *shape[1:]), outputs).eval()
    x = batch((3, *shape[1:]), 2, name)
    with torch.no_grad():
        plain = model(x)
        turned = model(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(plain, turned, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_of_gradients(name: str) -> None:
    shape, outputs = SHAPES[name]
    model = build(name, shape, outputs).eval()
    weights = tuple(model.parameters())
    loss = F.cross_entropy(model(batch(shape, 2, name)), torch.tensor([0, 1]))
    first = torch.autograd.grad(loss, weights, create_graph=True)
    norm = sum((g * g).sum() for g in first)
    assert isinstance(norm, torch.Tensor)
    second = torch.autograd.grad(norm, weights)
    assert all(torch.isfinite(g).all() for g in second)
    assert any(g.abs().max() > 0 for g in second)


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_smallest_image(name: str) -> None:
    side = SMALLEST[name]
    assert build(name, (1, side, side + 1), 3)(torch.randn(2, 1, side, side + 1)).shape == (2, 3)
    message = f"{name}.*at least {side}x{side}, not {side + 1}x{side - 1}; use mlp"
    with pytest.raises(InputError, match=message) as error:
        build(name, (1, side + 1, side - 1), 3)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_no_image(name: str) -> None:
    with pytest.raises(InputError, match=r"needs images .*not samples of shape \(54,\); use mlp or logistic"):
        build(name, (54,), 3)


@pytest.mark.parametrize("name", ["convnet2", "cnn-mcmahan", "lenet5", "vgg11-gn", "resnet18-gn"])
def test_larger_and_oblong_images(name: str) -> None:
    assert build(name, (2, 41, 67), 5)(torch.randn(1, 2, 41, 67)).shape == (1, 5)


def test_pool_and_relu_are_as_in_the_papers() -> None:
    """We pool before the ReLU for speed; values and gradients are those of the usual order."""
    model = build("lenet5", (1, 28, 28), 26)
    layers = dict(model.named_children())

    def usual(x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(layers["conv1"](x)), 2)
        x = F.max_pool2d(F.relu(layers["conv2"](x)), 2)
        logits: torch.Tensor = layers["fc4"](F.relu(layers["fc3"](x.flatten(1))))
        return logits

    x = batch((1, 28, 28), 4, "lenet5")
    weights = tuple(model.parameters())
    assert torch.equal(model(x), usual(x))
    ours = torch.autograd.grad(model(x).square().sum(), weights)
    theirs = torch.autograd.grad(usual(x).square().sum(), weights)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_layer_names() -> None:
    def names(name: str) -> list[str]:
        shape, outputs = SHAPES[name]
        with torch.device("meta"):
            model = MODELS.get(name)(shape, outputs)
        return [n.removesuffix(".weight") for n, _ in model.named_parameters() if n.endswith("weight")]

    assert names("convnet2") == ["conv1", "conv2", "fc1"]
    assert names("spfl-cnn") == ["conv1", "conv2", "fc1", "fc2"]
    assert names("lenet5") == ["conv1", "conv2", "fc3", "fc4"]
    assert names("lenet-cifar") == ["conv1", "conv2", "fc1", "fc2", "fc3"]
    assert names("text-embedding") == ["embedding", "fc1"]
    assert names("vgg11-gn")[:4] == ["conv1", "norm1", "conv2", "norm2"]


def test_lenet_tensors_have_the_shapes_of_the_erk_table() -> None:
    with torch.device("meta"):
        model = MODELS.get("lenet5")((1, 28, 28), 26)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if name.endswith("weight")}
    assert shapes == {
        "conv1.weight": (20, 1, 5, 5),
        "conv2.weight": (50, 20, 5, 5),
        "fc3.weight": (500, 800),
        "fc4.weight": (26, 500),
    }


def test_options() -> None:
    with torch.device("meta"):
        assert MODELS.get("mlp")((64,), 10, hidden=7).get_parameter("fc1.bias").shape == (7,)
        assert MODELS.get("spfl-cnn")((1, 28, 28), 10, width=512).get_parameter("fc1.bias").shape == (512,)
        text = MODELS.get("text-embedding")((9,), 2, vocabulary=30, width=4)
    assert text.get_parameter("embedding.weight").shape == (30, 4)
    assert bind("model", "mlp:200", MODELS.get("mlp"), skip=2) == {"hidden": 200}
    assert bind("model", "convnet2:0.1", MODELS.get("convnet2"), skip=2) == {"dropout": 0.1}


def test_dropout_works_in_training_only() -> None:
    model = build("convnet2", (1, 28, 28), 10)
    x = batch((1, 28, 28), 2, "convnet2")
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))
    undropped = build("convnet2", (1, 28, 28), 10, dropout=0.0)
    assert torch.equal(undropped(x), undropped(x))


def test_tokens_of_any_integer_type() -> None:
    model = build("text-embedding", (5,), 2)
    tokens = torch.tensor([[1, 2, 3, 0, 0]])
    assert torch.equal(model(tokens), model(tokens.to(torch.int32)))
    assert torch.equal(model(tokens), model(tokens.to(torch.uint8)))


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("mlp", (8,), {"hidden": 0}, "hidden must be at least 1, not 0"),
        ("spfl-cnn", (1, 28, 28), {"width": -1}, "width must be at least 1"),
        ("convnet2", (1, 28, 28), {"dropout": 1.0}, "dropout must be"),
        ("convnet2", (1, 28, 28), {"dropout": float("nan")}, "dropout must be"),
        ("text-embedding", (1, 28, 28), {}, r"needs texts of shape \(length,\)"),
        ("text-embedding", (28,), {"vocabulary": 0}, "vocabulary must be at least 1"),
    ],
)
def test_bad_options(name: str, shape: tuple[int, ...], options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(name, shape, 10, **options)


@pytest.mark.parametrize("name", SHAPES)
def test_no_outputs(name: str) -> None:
    with pytest.raises(InputError, match="outputs must be at least 1"):
        build(name, SHAPES[name][0], 0)
