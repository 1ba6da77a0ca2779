"""Pictures of every format and kind of sample, and their pixels as Pillow reads them.
usage: pictures.py OUT        (Python 3.12, pillow 13.0.0, numpy 2.5.5)

Writes OUT/files/NAME and OUT/pixels.safetensors: per file `NAME.rgb` [height, width, 3] as
transformers loads it (`ImageOps.exif_transpose`, then `convert("RGB")`), for files with transparency
`NAME.white`, laid over white as its processor does it, and for animations `NAME.frames`
[frames, height, width, 3] and `NAME.durations` in milliseconds."""
import io, json, os, struct, sys, zlib
import numpy as np
from PIL import Image, ImageOps

OUT = sys.argv[1]
os.makedirs(f"{OUT}/files", exist_ok=True)
H, W = 43, 61
rng = np.random.default_rng(16)


def scene(h, w, seed=0):
    """Gradients, edges and a little noise: what a photo has."""
    y, x = np.mgrid[0:h, 0:w].astype(float)
    noise = np.random.default_rng(seed).normal(0, 6, (h, w, 3))
    base = np.stack([x * 255 / w, y * 255 / h, 128 + 100 * np.sin(x / 7 + seed) * np.cos(y / 9)], -1)
    base[(x - w / 2) ** 2 + (y - h / 2) ** 2 < (h / 3) ** 2] = (200, 60, 40 + 20 * seed)
    return np.clip(base + noise, 0, 255).astype(np.uint8)


RGB = scene(H, W)
ALPHA = ((np.mgrid[0:H, 0:W][1] * 7 + np.mgrid[0:H, 0:W][0] * 3) % 256).astype(np.uint8)
RGBA = np.dstack([RGB, ALPHA])
im = Image.fromarray(RGB)
ima = Image.fromarray(RGBA)
pal = im.quantize(200)
files = {}


def save(name, image, fmt, **options):
    buffer = io.BytesIO()
    image.save(buffer, fmt, **options)
    files[name] = buffer.getvalue()


def png(array, color, depth, interlace=False):
    """A PNG of raw samples, for kinds that Pillow does not write."""
    h, w = array.shape[:2]
    flat = array.reshape(h, w, -1)

    def rows(part):
        if part.shape[0] == 0 or part.shape[1] == 0: return b""
        data = part.astype(">u2" if depth == 16 else "u1")
        return b"".join(b"\0" + data[i].tobytes() for i in range(part.shape[0]))

    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    raw = b"".join(rows(flat[a::c, b::d]) for a, b, c, d in passes) if interlace else rows(flat)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, int(interlace)))
            + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


def bmp(bits, compression, palette, masks, data, height=H):
    info = struct.pack("<IiiHHIIiiII", 40, W, height, 1, bits, compression, len(data), 2835, 2835, len(palette) // 4, 0)
    start = 14 + 40 + len(masks) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start) + info + masks + palette + data


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    return data.tobytes()


# PNG
save("rgb8.png", im, "PNG")
save("rgba8.png", ima, "PNG")
save("grey8.png", im.convert("L"), "PNG")
save("la8.png", ima.convert("LA"), "PNG")
save("palette8.png", pal, "PNG")
save("palette8_transparent.png", pal, "PNG", transparency=bytes(i * 3 % 256 for i in range(200)))
save("palette4.png", im.quantize(13), "PNG")
save("palette2.png", im.quantize(4), "PNG")
save("bilevel.png", im.convert("1"), "PNG")
save("rgb8_transparent.png", im, "PNG", transparency=tuple(int(v) for v in RGB[3, 5]))
save("exif6.png", im, "PNG", exif=exif(6))
W16 = RGB.astype(np.uint16) * 256 + rng.integers(0, 256, RGB.shape, dtype=np.uint16)
A16 = ALPHA.astype(np.uint16) * 256 + 77
files["rgb16.png"] = png(W16, 2, 16)
files["rgba16.png"] = png(np.dstack([W16, A16]), 6, 16)
files["la16.png"] = png(np.dstack([W16[..., :1], A16]), 4, 16)
files["grey16.png"] = png(W16[..., 1:2], 0, 16)
files["interlaced.png"] = png(RGB, 2, 8, interlace=True)
# JPEG
photo = Image.fromarray(scene(120, 161, 3))
save("444.jpg", photo, "JPEG", quality=95, subsampling=0)
save("422.jpg", photo, "JPEG", quality=90, subsampling=1)
save("420.jpg", photo, "JPEG", quality=85, subsampling=2)
save("progressive.jpg", photo, "JPEG", quality=85, subsampling=2, progressive=True)
save("grey.jpg", photo.convert("L"), "JPEG", quality=90)
save("rgb.jpg", photo, "JPEG", quality=92, keep_rgb=True)
save("restart.jpg", photo, "JPEG", quality=80, restart_marker_blocks=3)
save("tiny.jpg", Image.fromarray(scene(3, 5, 1)), "JPEG", quality=90)
cmyk = Image.fromarray(np.dstack([255 - scene(60, 71, 4), scene(60, 71, 5)[..., 2] // 3]), "CMYK")
save("cmyk.jpg", cmyk, "JPEG", quality=92)
adobe = files["cmyk.jpg"].index(b"Adobe") - 4
files["cmyk_plain.jpg"] = files["cmyk.jpg"][:adobe] + files["cmyk.jpg"][adobe + 16:]
ycck = bytearray(files["cmyk.jpg"])
ycck[adobe + 15] = 2
files["ycck.jpg"] = bytes(ycck)
for turn in range(1, 9):
    save(f"exif{turn}.jpg", Image.fromarray(scene(24, 40, 2)), "JPEG", quality=95, exif=exif(turn))
# WebP
save("lossless.webp", im, "WEBP", lossless=True)
save("lossless_alpha.webp", ima, "WEBP", lossless=True, exact=True)
save("lossy.webp", photo, "WEBP", quality=85)
save("lossy_alpha.webp", ima, "WEBP", quality=90)
save("exif8.webp", im, "WEBP", lossless=True, exif=exif(8))
# GIF
save("plain.gif", pal, "GIF")
save("interlaced.gif", pal, "GIF", interlace=1)
save("transparent.gif", pal, "GIF", transparency=int(np.asarray(pal)[10, 10]))
# BMP
save("rgb24.bmp", im, "BMP")
save("palette8.bmp", pal, "BMP")
save("grey8.bmp", im.convert("L"), "BMP")
save("bilevel.bmp", im.convert("1"), "BMP")
save("rgba32.bmp", ima, "BMP")
up = RGB[::-1].astype(np.uint32)
pad = lambda rows: np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4))).tobytes()
files["rgb555.bmp"] = bmp(16, 0, b"", b"", pad(((up[..., 0] >> 3 << 10) | (up[..., 1] >> 3 << 5) | up[..., 2] >> 3).astype("<u2").view(np.uint8)))
files["rgb565.bmp"] = bmp(16, 3, b"", struct.pack("<III", 0xf800, 0x7e0, 0x1f),
                          pad(((up[..., 0] >> 3 << 11) | (up[..., 1] >> 2 << 5) | up[..., 2] >> 3).astype("<u2").view(np.uint8)))
files["topdown.bmp"] = bmp(24, 0, b"", b"", pad(np.ascontiguousarray(RGB[..., ::-1]).reshape(H, -1)), -H)
index = (np.asarray(im.convert("L")) // 32)[::-1]
colours = b"".join(bytes([i * 30, 255 - i * 20, i * 9, 0]) for i in range(8))
runs = b""
for row in index:
    at = 0
    while at < W:
        n = 1
        while at + n < W and row[at + n] == row[at]: n += 1
        runs += bytes([n, int(row[at])])
        at += n
    runs += b"\0\0"
files["rle8.bmp"] = bmp(8, 1, colours, b"", runs + b"\0\1")
# Animations: 12 frames of 1/4 s, and one whose frames last unequally and overlap.
clip = [Image.fromarray(scene(40, 56, n)) for n in range(12)]
save("clip.webp", clip[0], "WEBP", save_all=True, append_images=clip[1:], duration=250, lossless=True)
save("clip.png", clip[0], "PNG", save_all=True, append_images=clip[1:], duration=250)
save("clip.gif", clip[0].quantize(64), "GIF", save_all=True, append_images=[f.quantize(64) for f in clip[1:]], duration=250)
base = np.zeros((30, 36, 3), np.uint8) + np.array([40, 90, 160], np.uint8)
moving = []
for n in range(5):
    frame = base.copy()
    frame[4 + 4 * n:12 + 4 * n, 3 + 5 * n:14 + 5 * n] = (220, 200 - 30 * n, 30 * n)
    moving.append(Image.fromarray(frame))
TIMES = [40, 100, 250, 10, 600]
save("moving.gif", moving[0], "GIF", save_all=True, append_images=moving[1:], duration=TIMES)
save("moving.png", moving[0], "PNG", save_all=True, append_images=moving[1:], duration=TIMES)
save("moving.webp", moving[0], "WEBP", save_all=True, append_images=moving[1:], duration=TIMES, lossless=True)
save("exif6.webp", moving[0], "WEBP", save_all=True, append_images=moving[1:], duration=TIMES, lossless=True, exif=exif(6))

tensors = {}
for name, data in files.items():
    open(f"{OUT}/files/{name}", "wb").write(data)
    picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    tensors[f"{name}.rgb"] = np.asarray(picture.convert("RGB"))
    if "A" in picture.getbands() or picture.info.get("transparency") is not None:
        rgba = picture.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        tensors[f"{name}.white"] = np.asarray(Image.alpha_composite(white, rgba).convert("RGB"))
    opened = Image.open(io.BytesIO(data))
    if getattr(opened, "n_frames", 1) > 1:
        frames, durations = [], []
        for n in range(opened.n_frames):
            opened.seek(n)
            frames.append(np.asarray(opened.convert("RGB")))
            durations.append(int(opened.info["duration"]))
        tensors[f"{name}.frames"] = np.stack(frames)
        tensors[f"{name}.durations"] = np.array(durations, np.int32)
    sizes = [len(data), Image.open(io.BytesIO(data)).mode]
    print(name, *sizes, tensors[f"{name}.rgb"].shape)

header, body = {}, b""
for name, array in sorted(tensors.items()):
    raw = np.ascontiguousarray(array).tobytes()
    header[name] = {"dtype": {"uint8": "U8", "int32": "I32"}[str(array.dtype)], "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(raw)]}
    body += raw
head = json.dumps(header).encode()
head += b" " * (-len(head) % 8)
open(f"{OUT}/pixels.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + body)
