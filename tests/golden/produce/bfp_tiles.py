"""Golden BFP8_B and BFP4_B tiles, written by the host packer of `ttnn` 0.76.0 (numpy 1.26.4).

usage: bfp_tiles.py OUT_DIR
Wants TT_METAL_MOCK_CLUSTER_DESC_PATH and TT_METAL_SLOW_DISPATCH_MODE=1: the packer asks which chip
it packs for. Writes tiles.f32 (row-major 32x32 matrices, little-endian), and of each format
NAME.bin (their tiles) and NAME.f32 (their values after a round trip).
Tiles: ordinary values; magnitudes over the whole range of f32, subnormal ones too; exact ties of
the rounding; values that saturate; zeros of both signs beside others; all zero.
"""
import os
import sys
import numpy as np
import ttnn

rng = np.random.default_rng(20260814)


def random_bits(lowest, highest):
    exponents = rng.integers(lowest, highest, 1024).astype(np.uint32)
    mantissas = rng.integers(0, 1 << 23, 1024).astype(np.uint32)
    signs = rng.integers(0, 2, 1024).astype(np.uint32)
    return (signs << 31 | exponents << 23 | mantissas).view(np.float32)


def ties(steps):
    # Halves of the last place under a shared exponent of 0: the first of every 16 sets it.
    values = (rng.integers(0, 2 * steps, 1024) + 0.5) / steps * rng.choice([-1, 1], 1024)
    values[::16] = 1.0
    return values.astype(np.float32)


ordinary = rng.normal(size=1024) * 0.02
saturating = rng.choice([1.9999999, -1.9999, 1.99, 0.99, 1.0, -0.75], 1024)
zeros = np.where(rng.random(1024) < 0.6, rng.choice([0.0, -0.0], 1024), ordinary)
tiles = np.stack([
    ordinary, rng.normal(size=1024) * 1e4, random_bits(0, 254), random_bits(0, 12),
    random_bits(110, 135), ties(64), ties(4), saturating, zeros, np.zeros(1024),
]).astype("<f4")
tiles.tofile(f"{sys.argv[1]}/tiles.f32")
for name, dtype, size in [("bfp8_b", ttnn.bfloat8_b, 1088), ("bfp4_b", ttnn.bfloat4_b, 576)]:
    packed, unpacked = [], []
    for tile in tiles:
        tensor = ttnn.Tensor(tile.tolist(), [32, 32], dtype, ttnn.TILE_LAYOUT)
        file = f"{sys.argv[1]}/tile.tensorbin"
        ttnn.dump_tensor(file, tensor)
        packed.append(open(file, "rb").read()[-size:])
        os.remove(file)
        values = ttnn.to_dtype(tensor, ttnn.float32).to_list()
        unpacked.append(np.array(values, "<f4").tobytes())
    open(f"{sys.argv[1]}/{name}.bin", "wb").write(b"".join(packed))
    open(f"{sys.argv[1]}/{name}.f32", "wb").write(b"".join(unpacked))
