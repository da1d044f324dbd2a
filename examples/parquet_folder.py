"""
A folder of Parquet files
=========================

A table often comes in many files. A store is made of the whole folder in bounded memory, and keeps
the names of the columns. Models then read those columns from any table.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.inspection import permutation_importance

import bigsvm

NAMES = ["age", "income", "visits", "distance", "noise_1", "noise_2"]
rng = np.random.default_rng(0)


def table(rows: int) -> pd.DataFrame:
    """Make customers, and whether they stay."""
    made = pd.DataFrame(rng.normal(size=(rows, len(NAMES))).astype(np.float32), columns=NAMES)
    score = made["visits"] + np.sin(2 * made["age"]) - 0.5 * made["distance"] ** 2
    return made.assign(stays=score + 0.3 * rng.normal(size=rows) > 0)


with tempfile.TemporaryDirectory() as temporary:
    folder = Path(temporary)
    (folder / "parts").mkdir()
    for part in range(8):
        table(1500).to_parquet(folder / "parts" / f"{part}.parquet")
    store = bigsvm.write_store(folder / "customers.zarr", str(folder / "parts"), "stays")
    print(f"{store.rows.n_rows} rows of 8 files, {store.rows.n_columns} columns")
    model = bigsvm.SVC(C=3, gamma=0.1, memory="50MB").fit(store)

new = table(2000)
print(f"{model.stop_reason_}, accuracy on a new table {model.score(new[NAMES], new['stays']):.1%}")

# %%
# To see which columns matter, look at how much worse predictions get if a column is shuffled.
sample = new[:400]
importance = permutation_importance(
    model, sample[NAMES], sample["stays"], n_repeats=5, random_state=0
)
figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
order = np.argsort(importance.importances_mean)
axis.barh(
    np.array(NAMES)[order],
    importance.importances_mean[order],
    xerr=importance.importances_std[order],
)
axis.set_xlabel("loss of accuracy")
