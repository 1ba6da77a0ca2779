"""Grids of pictures in the set order of CPython.   usage: picture_grids.py > grids.json   (CPython 3.12)

The rule of transformers' image processor: the ideal cells of each side, rounded both ways, as a set
of pairs; the first that is nearest in shape and within the cap. `smaller`: every size below 400
squared whose grid is not the one with the most cells among the nearest, as [height, width, rows,
columns]. `others`: [height, width, cap, rows, columns] of random sizes."""
import json, math, random


def nearest(height, width, cap):
    rows, columns = height / 28, width / 28
    ratio = columns / rows
    if rows * columns > cap:
        rows = (cap / ratio) ** 0.5
        columns = rows * ratio
    pairs = set()
    for a in (math.floor(rows), math.ceil(rows)):
        for b in (math.floor(columns), math.ceil(columns)):
            pairs.add((a, b))
    fitting = [(a, b) for a, b in pairs if a >= 1 and b >= 1 and a * b <= cap]
    distance = lambda pair: abs(pair[0] / pair[1] - height / width)
    return [pair for pair in fitting if distance(pair) == min(map(distance, fitting))]


smaller, others = [], []
for height in range(1, 400):
    for width in range(1, 400):
        best = nearest(height, width, 4096)
        if best[0][0] * best[0][1] < max(a * b for a, b in best):
            smaller.append([height, width, *best[0]])
random.seed(16)
while len(others) < 1200:
    height, width = (int(2 ** random.uniform(0, 13)) for _ in range(2))
    if len(others) % 3 == 0: width = height
    cap = random.choice([144, 1000, 4096, 4096])
    best = nearest(height, width, cap)
    if best: others.append([height, width, cap, *best[0]])
print(json.dumps({"smaller": smaller, "others": others}, separators=(",", ":")))
