"""How far llama.cpp's scores are from exact ones on the same quantized files: the constants of
tests/tests/quantized_logits.rs. Exact: the weights that the gguf package decodes, in f64 numpy.
usage: llama_distances.py MUSE LLAMA_LOGITS CHECKPOINT VOCABULARY PROMPTS TYPE...
CHECKPOINT: a folder with config.json and model.safetensors; VOCABULARY: one with tokenizer.json,
which llama.cpp wants to see; PROMPTS: text_f32.safetensors of the goldens; LLAMA_LOGITS:
llama_logits.cpp, built. Needs numpy and gguf."""
import json, struct, subprocess, sys, tempfile
import numpy as np, gguf

MUSE, LOGITS, CHECKPOINT, VOCABULARY, PROMPTS, *TYPES = sys.argv[1:]


def prompts():
    raw = open(PROMPTS, "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    for name in ("p33.ids", "p100.ids"):
        first, end = header[name]["data_offsets"]
        yield np.frombuffer(raw[8 + size + first:8 + size + end], {"I64": np.int64, "I32": np.int32}[header[name]["dtype"]])


def rms(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rope(x, theta):  # [n, heads, d], neighbours turn together: the order of heads in a GGUF
    angle = np.arange(len(x))[:, None, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    a, b, cos, sin = x[..., ::2], x[..., 1::2], np.cos(angle), np.sin(angle)
    return np.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def exact(path, ids):
    reader = gguf.GGUFReader(path)
    w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
    key = lambda name: reader.fields["muse-glimmer." + name].contents()
    eps, post, d = key("attention.layer_norm_rms_epsilon"), 1e-8, key("attention.key_length")
    x, n = rms(w["token_embd.weight"][ids], eps), len(ids)
    distance = np.arange(n)[:, None] - np.arange(n)[None]
    for layer, sliding in enumerate(key("attention.sliding_window_pattern")):
        g = lambda name: w[f"blk.{layer}.{name}.weight"]
        h = rms(x, eps) * g("attn_norm")
        q, k, v = ((h @ g("attn_" + name).T).reshape(n, -1, d) for name in "qkv")
        q, k = rms(q, eps) * g("attn_q_norm"), rms(k, eps) * g("attn_k_norm")
        mask = distance >= 0
        if sliding:
            q, k = rope(q, key("rope.freq_base")), rope(k, key("rope.freq_base"))
            mask &= distance < key("attention.sliding_window")
        shared = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, shared, 1), np.repeat(v, shared, 1)
        s = np.where(mask, np.einsum("nhd,mhd->hnm", q, k) / np.sqrt(d), -np.inf)
        s = np.exp(s - s.max(-1, keepdims=True))
        o = np.einsum("hnm,mhd->nhd", s / s.sum(-1, keepdims=True), v).reshape(n, -1)
        o = (o * sigmoid(h @ g("attn_gate").T)) @ g("attn_output").T
        x = x + rms(o, post) * g("post_attention_norm")
        h = rms(x, eps) * g("ffn_norm")
        gate = h @ g("ffn_gate").T
        m = (gate * sigmoid(gate) * (h @ g("ffn_up").T)) @ g("ffn_down").T
        x = x + rms(m, post) * g("post_ffw_norm")
    scores = rms(x, eps) * w["output_norm.weight"] @ w["output.weight"].T * key("logit_scale")
    cap = key("final_logit_softcapping")
    return cap * np.tanh(scores / cap)


for format in TYPES:
    with tempfile.TemporaryDirectory() as folder:
        path, out = folder + "/model.gguf", folder + "/scores"
        types = ["--type", format, "--keep-head", format, "--vocabulary", VOCABULARY]
        subprocess.run([MUSE, "quantize", CHECKPOINT, path, *types], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wanted, got = [], []
        for ids in prompts():
            subprocess.run([LOGITS, path, out, *map(str, ids)], check=True, stderr=subprocess.DEVNULL)
            got.append(np.fromfile(out, np.float32).reshape(len(ids), -1))
            wanted.append(exact(path, ids))
    wanted, got = np.concatenate(wanted), np.concatenate(got)
    equal = (wanted.argmax(-1) == got.argmax(-1)).mean()
    print(f"{format:6} mean difference {np.abs(wanted - got).mean():.4f}, {equal:.3f} of the best tokens equal")
