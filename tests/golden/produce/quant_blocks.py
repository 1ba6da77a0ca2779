"""Golden blocks of every GGUF format, decoded by the `gguf` package 0.19.0 (numpy 2.4.6).

usage: quant_blocks.py OUT_DIR
A format gives NAME.bin (blocks one after the other) and NAME.f32 (their values, little-endian).
Blocks: random bytes with an ordinary scale, wholly random bytes (any scale, NaN and infinity too),
all bits set, all clear, all set under a zero scale.
"""
import sys
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T, quants

# Offsets of the half-precision numbers in a block.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ1_S": [0], "IQ1_M": None, "IQ2_XXS": [0], "IQ2_XS": [0],
    "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": None,
}

rng = np.random.default_rng(20260814)
for name, halves in HALVES.items():
    values, size = gguf.GGML_QUANT_SIZES[T[name]]
    ordinary, wild = (12, 4) if values == 256 else (64, 16)
    blocks = rng.integers(0, 256, (ordinary + wild + 3, size), dtype=np.uint8)
    blocks[-3], blocks[-2], blocks[-1] = 255, 0, 255
    for at in halves or []:
        scales = (rng.normal(size=ordinary) * 0.02).astype("<f2").view(np.uint8).reshape(-1, 2)
        blocks[:ordinary, at:at + 2] = scales
        blocks[-1, at:at + 2] = 0
    if name == "MXFP4":
        blocks[:ordinary, 0] = rng.integers(118, 130, ordinary)
        blocks[-1, 0] = 0
    if name == "IQ1_M":  # the scale's four nibbles lie on top of the four last words
        for row in blocks[:ordinary]:
            bits = int((rng.normal() * 0.02 * np.ones(1)).astype("<f2").view("<u2")[0])
            for i in range(4):
                row[49 + 2 * i] = row[49 + 2 * i] & 15 | (bits >> (4 * i) & 15) << 4
        blocks[-1, 49::2] &= 15
    with np.errstate(all="ignore"):
        decoded = quants.dequantize(blocks.reshape(-1), T[name]).astype("<f4")
    blocks.tofile(f"{sys.argv[1]}/{name.lower()}.bin")
    decoded.tofile(f"{sys.argv[1]}/{name.lower()}.f32")
