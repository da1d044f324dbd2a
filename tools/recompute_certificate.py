"""Recompute the certificate of an SVC with the RBF kernel from its model file and its data alone.

    python tools/recompute_certificate.py MODEL DATA

DATA is the store, or its LIBSVM text (may be gzipped) if it was converted with --no-shuffle. Needs
NumPy, and zarr to read stores. All is float64, in blocks of rows. Prints sums over all functions,
and the largest KKT gap. With f = K beta, without the intercept b, beta = y alpha, 0 <= alpha <= C:
dual = sum alpha - beta'f / 2, primal = beta'f / 2 + C sum max(0, 1 - y (f + b)), and the KKT gap is
max of y - f over rows that may go up - min over rows that may go down.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from itertools import combinations, islice
from pathlib import Path

import numpy as np

BLOCK = 2000  # rows at once: kernel values with 20 000 support vectors are 320 MB


def read_model(path: str) -> tuple[dict, dict]:
    raw = Path(path).read_bytes()
    size = 8 + int.from_bytes(raw[:8], "little")
    entries, tensors = json.loads(raw[8:size]), {}
    head = json.loads(entries.pop("__metadata__")["bigsvm"])
    for name, entry in entries.items():
        start, end = (size + place for place in entry["data_offsets"])
        dtype = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}[entry["dtype"]]
        tensors[name] = np.frombuffer(raw[start:end], dtype).reshape(entry["shape"])
    return head, tensors


def dense(data: np.ndarray, indices: np.ndarray, starts: np.ndarray, d: int) -> np.ndarray:
    found = np.zeros((len(starts) - 1, d))
    found[np.repeat(np.arange(len(found)), np.diff(starts)), indices] = data
    return found


def matrix(tensors: dict, name: str, d: int) -> np.ndarray:
    if name in tensors:
        return tensors[name].reshape(-1, d).astype(float)
    return dense(*(tensors[f"{name}.{part}"] for part in ("data", "indices", "indptr")), d)


def blocks_of(path: str, d: int, first: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if Path(path).is_dir():
        import zarr

        X, labels = (zarr.open_group(path, mode="r")[name] for name in ("X", "y"))
        for at in range(0, labels.shape[0], BLOCK):
            if isinstance(X, zarr.Group):
                starts = X["indptr"][at : at + BLOCK + 1]
                values = (X[name][starts[0] : starts[-1]] for name in ("data", "indices"))
                yield dense(*values, starts, d), labels[at : at + BLOCK]
            else:
                yield X[at : at + BLOCK].astype(float), labels[at : at + BLOCK]
        return
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
        while lines := [line.split() for line in islice(file, BLOCK)]:
            x = np.zeros((len(lines), d), np.float32)  # as stores hold values
            for i, (_, *words) in enumerate(lines):
                pairs = np.array([word.split(":") for word in words], float).reshape(-1, 2)
                x[i, pairs[:, 0].astype(int) - first] = pairs[:, 1]
            yield x.astype(float), np.array([float(label) for label, *_ in lines])


def recompute(model: str, data: str) -> dict[str, float]:
    head, tensors = read_model(model)
    given, classes, d = head["provenance"]["parameters"], head["classes"], head["n_features"]
    kernel, one_C = head["kernel"], set(given["class_weight"] or [1.0]) == {1.0}
    if not (head["formulation"] == "c-svc" and kernel["name"] == "rbf" and one_C):
        sys.exit(f"{model} is no c-svc with the rbf kernel and one C: train one")
    functions = [(second, [first]) for first, second in combinations(classes, 2)]
    if head.get("rule") == "ovr":
        functions = [(each, [c for c in classes if c != each]) for each in classes]
    vectors, support = matrix(tensors, "support_vectors", d), tensors["support"]
    coefficients = matrix(tensors, "coefficients", len(functions))
    squares, C, parts, done = (vectors**2).sum(axis=1), given["C"], [], 0
    first_index = {0: 0}.get(head["provenance"].get("first_index"), 1)  # LIBSVM counts from 1
    for x, labels in blocks_of(data, d, first_index):
        distances = squares + (x**2).sum(axis=1)[:, None] - 2 * (x @ vectors.T)
        f = np.exp(-kernel["gamma"] * np.maximum(distances, 0)) @ coefficients
        beta = np.zeros_like(f)
        mine = (done <= support) & (support < done + len(x))
        beta[support[mine] - done] = coefficients[mine]
        if not np.array_equal(x[support[mine] - done], vectors[mine]):
            sys.exit(f"rows from {done} of {data} are not those of {model}: give its own store")
        parts, done = [*parts, (f, beta, labels)], done + len(x)
    f, beta, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    dual, primal, gap, outside = 0.0, 0.0, 0.0, 0.0
    for c, (positive, negative) in enumerate(functions):
        of = np.isin(labels, [positive, *negative])
        y, g, b = np.where(labels[of] == positive, 1.0, -1.0), f[of, c], beta[of, c]
        alpha, quadratic, score = y * b, b @ g / 2, y - g
        up, down = np.where(y > 0, alpha < C, alpha > 0), np.where(y > 0, alpha > 0, alpha < C)
        dual += alpha.sum() - quadratic
        primal += quadratic + C * np.maximum(0, 1 - y * (g + tensors["intercepts"][c])).sum()
        gap = max(gap, score[up].max() - score[down].min())
        outside = max(outside, -alpha.min(), alpha.max() - C, abs(b.sum()))
    return {"dual": dual, "primal": primal, "duality_gap": primal - dual, "gap": gap,
            "constraints_violated_by": outside, "rows": done, "support": len(support)}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(recompute(*sys.argv[1:3]), default=float))
