"""An embedding and one linear layer, the IMDB net of FedPSE.

FedPSE: Personalized Sparsification with Element-wise Aggregation for Federated Learning, Appendix C.2: "one
Embedding layer, which is prebuilt in Keras, followed by a fully-connected layer".
"""

from torch import Tensor, nn

from sparsona.errors import InputError
from sparsona.models import MODELS
from sparsona.models._parts import at_least_one


class TextEmbedding(nn.Module):
    """The mean of the words' embeddings, and a linear layer."""

    def __init__(self, vocabulary: int, width: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        # Keras's range. torch's unit normal drowns the mean over a text in noise for many epochs.
        nn.init.uniform_(self.embedding.weight, -0.05, 0.05)
        self.fc1 = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """The outputs for a batch."""
        logits: Tensor = self.fc1(self.embedding(tokens.long()).mean(1))
        return logits


@MODELS.add
def text_embedding(shape: tuple[int, ...], outputs: int, vocabulary: int = 10000, width: int = 16) -> nn.Module:
    """The mean of the tokens' embeddings (padding counts, as in Keras), then the head `fc1`.

    >>> sum(p.numel() for p in text_embedding((256,), 2).parameters())
    160034
    """
    if len(shape) != 1:
        message = f"model 'text-embedding' needs texts of shape (length,), not samples of shape {shape}"
        raise InputError(f"{message}; use mlp, or convnet2 for images")
    at_least_one("text-embedding", outputs=outputs, vocabulary=vocabulary, width=width)
    return TextEmbedding(vocabulary, width, outputs)
