"""Stores that are damaged."""

from __future__ import annotations

import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
from attacks import oracle
from attacks.child import fresh
from attacks.subjects import (
    MEMORY,
    N_ROWS,
    OTHER_DATA,
    TRAINING,
    Subject,
    arrays_damages,
    clouds,
    fields_damages,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import zarr
    from attacks.child import Ended
    from attacks.subjects import Damage
    from numpy.typing import NDArray

    from bigsvm.models import KernelExpansion


class StoreSubject(Subject):
    """A store with weights: trained on, predicted for and described."""

    def __init__(self, folder: Path, *, layout: str) -> None:
        super().__init__(folder)
        self.name = f"store, {layout}"
        self._layout = layout

    def make(self) -> None:
        """Write the store, and a model of it."""
        import scipy.sparse as sp

        import bigsvm

        rows, labels = clouds()
        if self._layout == "csr":
            rows = sp.csr_array(np.where(np.abs(rows) > 0.8, rows, 0))
        weights = np.linspace(0.5, 2, N_ROWS)
        plain = self.folder / "plain.zarr"
        bigsvm.write_store(plain, rows, labels, sample_weight=weights)
        fresh(["scale", plain, self.folder / "store", "--method", "maxabs"])
        shutil.rmtree(plain)
        for words in self.commands(self.folder):
            fresh(words)
        (self.folder / "trained").rename(self.folder / "given")

    def commands(self, folder: Path, target: str = "") -> list[list[str | Path]]:
        """Train, predict, describe."""
        model = folder / "given" if (folder / "given").exists() else folder / "trained"
        return [
            ["train", folder / "store", folder / "trained", "--C", "2", "--gamma", "0.3",
             *TRAINING],
            ["predict", folder / "store", model, "-o", folder / "predicted", "--overwrite",
             "--memory", MEMORY],
            ["info", folder / "store", "--json"],
        ]  # fmt: skip

    def outcome(self, folder: Path, ended: Sequence[Ended]) -> str:
        """Hold a converged model to the optimality conditions, computed from the arrays."""
        import zarr

        from bigsvm.models import KernelExpansion

        model = KernelExpansion.load(folder / "trained")
        if model.rule is not None or not model.certificate["converged"]:
            return OTHER_DATA
        group = zarr.open_group(folder / "store", mode="r")
        found = group["X"]
        rows = np.asarray(found) if isinstance(found, zarr.Array) else _csr(found)
        labels, weights = np.asarray(group["y"]), np.asarray(group["sample_weight"])
        gap = kkt_gap(model, rows.astype(np.float64), labels, 2.0 * weights)
        return OTHER_DATA if gap < 1e-2 else f"converged with a KKT gap of {gap:.3g}"

    def damages(self) -> Iterator[Damage]:
        """Walk the manifest, then the attributes."""
        import zarr

        group = zarr.open_group(self.folder / "store", mode="r")
        record = _attributes(self.folder)
        arrays = {name: np.asarray(group[name]) for name in record["manifest"]}
        yield from arrays_damages("", arrays, _put_array)
        yield from fields_damages(
            "attribute ", (((field,), value) for field, value in record.items()),
            lambda folder, field, changed: _put_attributes(folder, {field[0]: changed}),
        )  # fmt: skip


def kkt_gap(
    model: KernelExpansion,
    rows: NDArray[np.float64],
    labels: NDArray[np.float64],
    upper: NDArray[np.float64],
) -> float:
    """KKT gap of a C-SVC with the rbf kernel, infinite if the point is not feasible (float64).

    Parameters
    ----------
    model : KernelExpansion
    rows : (n, d) float64
    labels : (n,) float64
    upper : (n,) float64
        Upper bound of each alpha.
    """
    signs = np.where(labels == model.classes[1], 1.0, -1.0)
    beta = np.zeros(len(labels))
    beta[model.support] = model.coefficients
    K = oracle.gram(rows, rows, dict(model.kernel.describe()))
    intercept = float(np.ravel(model.intercept)[0])
    point = oracle.variables("c-svc", beta, intercept, signs, upper, {}, {})
    found = oracle.standing(K, point)
    return float("inf") if found.faults else found.gap


def _csr(group: zarr.Group) -> NDArray[Any]:
    import scipy.sparse as sp

    three = tuple(np.asarray(group[name]) for name in ("data", "indices", "indptr"))
    return sp.csr_array(three, shape=tuple(group.attrs["shape"])).toarray()


def _attributes(folder: Path) -> dict[str, Any]:
    from bigsvm.data import schema

    content = json.loads((folder / "store" / "zarr.json").read_text())
    record = content["attributes"][schema.KEY]
    return {key: value for key, value in record.items() if key not in ("checksum", "complete")}


def _put_attributes(folder: Path, changes: dict[str, Any]) -> None:
    """Change attributes and make the checksums fit."""
    from bigsvm.data import schema

    file = folder / "store" / "zarr.json"
    content = json.loads(file.read_text())
    record = content["attributes"][schema.KEY]
    record.update(changes)
    if not {"fingerprint", "rows_fingerprint"} & set(changes):
        # A record that makes no sense has no fingerprint either.
        with contextlib.suppress(Exception):
            record["fingerprint"], record["rows_fingerprint"] = schema.fingerprints(
                int(record["n_rows"]), int(record["n_columns"]), record["dtype"], record["layout"],
                {name: tuple(hashes) for name, hashes in record["manifest"].items()},
            )  # fmt: skip
    record["checksum"] = schema.checksum(record)
    file.write_text(json.dumps(content))


def _put_array(folder: Path, name: str, values: NDArray[Any]) -> None:
    """Write an array of the store again, in the chunks of before, and make the hashes fit."""
    import zarr

    from bigsvm.data import arrays, schema

    path = folder / "store" / name
    chunk_rows = zarr.open_array(path, mode="r").chunks[0]
    shutil.rmtree(path)
    spec = schema.ArraySpec(values.shape, values.dtype, chunk_rows)
    writer = arrays.ArrayWriter(path, spec, memory_bytes=1 << 20)
    writer.append(values)
    manifest = _attributes(folder)["manifest"]
    manifest[name] = list(writer.finish())
    _put_attributes(folder, {"manifest": manifest})
