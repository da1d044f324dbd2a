"""Checkpoints that are changed on purpose, with hashes made to fit."""

import json

import numpy as np
import xxhash

from bigsvm.one_vs_one.entries import RECORD, bodies, head_of


def newest(folder):
    return max(folder.glob("generation-*"))


def manifest_of(generation):
    return json.loads((generation / "manifest.json").read_bytes().rstrip().rpartition(b"\n")[0])


def write_manifest(generation, manifest):
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest, indent=1).encode()
    digest = xxhash.xxh3_128_hexdigest(text).encode()
    (generation / "manifest.json").write_bytes(text + b"\n" + digest + b"\n")


def forge(generation, *, arrays=(), values=(), entries=()):
    """Change arrays, values and other entries of a generation; the hashes fit."""
    manifest = manifest_of(generation)
    for name, change in dict(arrays).items():
        array = change(array_of(generation, name)) if callable(change) else change
        data = np.ascontiguousarray(array)
        (generation / f"{name}.bin").write_bytes(data.tobytes())
        manifest["arrays"][name] = {
            "dtype": data.dtype.str,
            "shape": list(data.shape),
            "xxh3": xxhash.xxh3_128_hexdigest(data.tobytes()),
        }
    manifest["values"].update(values)
    write_manifest(generation, manifest | dict(entries))


def array_of(generation, name):
    entry = manifest_of(generation)["arrays"][name]
    data = np.frombuffer((generation / f"{name}.bin").read_bytes(), entry["dtype"])
    return data.reshape(entry["shape"])


CHANGES = {
    "empty": lambda a: a[:0],
    "half": lambda a: a[: max(len(a) // 2, 1)],
    "doubled": lambda a: np.concatenate([a, a]),
    "negative": lambda a: -1 - np.abs(a),
    "2**30": lambda a: np.full_like(a, 2**30),
    "NaN": lambda a: np.full(a.shape, np.nan),
    "infinite": lambda a: np.full(a.shape, np.inf),
    "other type": lambda a: a.astype("<f4"),
    "one row": lambda a: a.reshape(1, -1),
}
"""What any array may be set to."""


def entries_of(log, seed):
    """Bodies of the entries of a log of pairs."""
    with log.open("rb") as file:
        return list(bodies(file, seed, most_rows=1 << 30))


def seed_of(folder):
    fingerprint = manifest_of(newest(folder))["fingerprint"]
    return xxhash.xxh3_64_intdigest(json.dumps(fingerprint, sort_keys=True).encode())


def forge_entry(folder, change, place=0):
    """Change record, rows and coefficients of an entry of the log of pairs."""
    log, seed = folder / "pairs.log", seed_of(folder)
    found = entries_of(log, seed)
    body = found[place]
    n = (len(body) - RECORD.itemsize) // 16
    record = np.frombuffer(body, RECORD, 1).copy()
    rows = np.frombuffer(body, "<i8", n, RECORD.itemsize).copy()
    coefficients = np.frombuffer(body, "<f8", n, RECORD.itemsize + 8 * n).copy()
    rows, coefficients = change(record, rows, coefficients) or (rows, coefficients)
    record["n_support"] = len(rows)
    found[place] = record.tobytes() + np.asarray(rows, "<i8").tobytes() + coefficients.tobytes()
    log.write_bytes(b"".join(head_of(body, seed) + body for body in found))
