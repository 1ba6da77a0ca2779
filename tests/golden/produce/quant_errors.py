"""How far llama.cpp's quantizers fall from their input, and the input.

usage: quant_errors.py LIBGGML_BASE NANO_FOLDER OUT_DIR
LIBGGML_BASE is libggml-base.so of llama.cpp (b11434 here); ggml_quantize_chunk is what llama-quantize
calls. Decoding is the `gguf` package's (0.19.0). Writes matrix.f32 (64 rows of 512: normal, one value in
128 eight times as large, rows of different size), importance.f32 (512) and errors.json: root of the mean
squared error per tensor and type, and of the mean of importance x squared error where the quantizer was
told the importance.
"""
import ctypes, json, struct, sys
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T, quants

library, nano, out = sys.argv[1:]
ggml = ctypes.CDLL(library)
ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]


def quantized(x, name, importance=None):
    x = np.ascontiguousarray(x, np.float32)
    values, size = gguf.GGML_QUANT_SIZES[T[name]]
    encoded = np.zeros(x.size // values * size, np.uint8)
    weights = None if importance is None else importance.ctypes.data
    wrote = ggml.ggml_quantize_chunk(int(T[name]), x.ctypes.data, encoded.ctypes.data, 0, *x.shape, weights)
    assert wrote == encoded.size
    return quants.dequantize(encoded, T[name]).reshape(x.shape).astype(np.float64)


def error(x, y, importance=1.0):
    return float(np.sqrt(np.mean(importance * (x.astype(np.float64) - y) ** 2)))


def tensors(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__" and entry["dtype"] == "BF16":
            begin, end = entry["data_offsets"]
            words = np.frombuffer(data[8 + length + begin:8 + length + end], np.uint16).astype(np.uint32)
            yield name, (words << 16).view(np.float32).reshape(entry["shape"])


rng = np.random.default_rng(20261129)
matrix = rng.normal(size=(64, 512)) * 0.02 * 2.0 ** rng.uniform(-2, 2, (64, 1))
matrix = np.where(rng.random(matrix.shape) < 1 / 128, 8 * matrix, matrix).astype("<f4")
importance = (rng.normal(size=512) ** 2 * 2.0 ** rng.uniform(-3, 3, 512) + 1e-3).astype("<f4")
matrix.tofile(f"{out}/matrix.f32")
importance.tofile(f"{out}/importance.f32")
wanted = {
    "model.language_model.embed_tokens.weight": "token_embd.weight",
    "model.language_model.layers.0.self_attn.q_proj.weight": "blk.0.attn_q.weight",
    "model.language_model.layers.3.self_attn.v_proj.weight": "blk.3.attn_v.weight",
    "model.language_model.layers.4.mlp.gate_proj.weight": "blk.4.ffn_gate.weight",
    "model.language_model.layers.7.mlp.down_proj.weight": "blk.7.ffn_down.weight",
    "lm_head.weight": "output.weight",
}
errors = {"matrix": {name: error(matrix, quantized(matrix, name)) for name in TYPES}}
errors["matrix by importance"] = {
    name: error(matrix, quantized(matrix, name, importance), importance) for name in TYPES if name != "Q8_0"
}
for name, x in tensors(f"{nano}/model.safetensors"):
    if name in wanted:
        errors[wanted[name]] = {kind: error(x, quantized(x, kind)) for kind in TYPES}
assert len(errors) == 2 + len(wanted)
json.dump(errors, open(f"{out}/errors.json", "w"), indent=1)
