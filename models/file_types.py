"""What a GGUF's weights are stored as, by the names people use (`Q4_K_M`). From llama.h's `llama_ftype`.

`general.file_type` says it, and where that is absent or unknown the format that most of the bytes have does.
"""

from __future__ import annotations

from collections import Counter

from models.gguf import GgufInfo

FULL_PRECISION = frozenset(["F32", "F16", "BF16"])

_NAMES = dict(enumerate(["F32", "F16", "Q4_0", "Q4_1"]))
_NAMES |= dict(enumerate(["Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M"], start=7))
_NAMES |= dict(enumerate(["Q5_K_S", "Q5_K_M", "Q6_K", "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS"], start=16))
_NAMES |= dict(enumerate(["IQ1_S", "IQ4_NL", "IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M", "IQ4_XS", "IQ1_M", "BF16"], start=24))
_NAMES |= dict(enumerate(["TQ1_0", "TQ2_0", "MXFP4", "NVFP4", "Q1_0", "Q2_0"], start=36))


def quantisation_of(info: GgufInfo) -> str:
    """`Q4_K_M`, or the plain number format (`Q4_K`) where the file does not say how they were mixed."""
    stated = info.metadata.get("general.file_type")
    common = main_format(info)
    name = _NAMES.get(stated, common) if type(stated) is int else common
    if (name in FULL_PRECISION) != (common in FULL_PRECISION):
        return common  # F32 is 0, what a converter writes that never set the field
    return name


def main_format(info: GgufInfo) -> str:
    """The number format that most bytes of the weights have."""
    sizes: Counter[str] = Counter()
    for tensor in info.tensors:
        sizes[tensor.type] += tensor.bytes
    return max(sizes, key=lambda name: sizes[name], default="F32")


def is_quantised(info: GgufInfo) -> bool:
    """True if the weights have been rounded already."""
    return main_format(info) not in FULL_PRECISION


def parameters_of(info: GgufInfo) -> int:
    """Weights counted from the tensor table."""
    total = 0
    for tensor in info.tensors:
        count = 1
        for extent in tensor.shape:
            count *= extent
        total += count
    return total
