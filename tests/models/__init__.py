"""Small train steps as their users would write them, for one device, and what is needed to run them anywhere."""

from models import linen_cnn, linen_lm, nnx_vit, plain_mlp
from models.example import Example as Example

EXAMPLES: dict[str, Example] = {
    "lm": linen_lm.unrolled,
    "scanned_lm": linen_lm.scanned,
    "vit": nnx_vit.example,
    "cnn": linen_cnn.example,
}
"""Those that every strategy is tried on."""

MLP: Example = plain_mlp.example
