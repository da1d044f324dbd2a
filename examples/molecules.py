"""
Molecules by the Tanimoto kernel
================================

A fingerprint of a molecule has a bit for each fragment that occurs in it. The Tanimoto kernel is
the number of bits that two molecules share, divided by the number that either has. The
fingerprints here are synthetic: an active molecule has most of a few fragments.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

import bigsvm

MOLECULES, BITS = 3000, 512
rng = np.random.default_rng(0)
size = rng.integers(10, 60, MOLECULES)  # molecules of very different size
fingerprints = np.zeros((MOLECULES, BITS), dtype=np.float32)
for row, count in enumerate(size):
    fingerprints[row, rng.choice(BITS, count, replace=False)] = 1
active = rng.random(MOLECULES) < 0.4
pharmacophore = rng.choice(BITS, 14, replace=False)
chosen = rng.random((MOLECULES, len(pharmacophore))) < np.where(active, 0.7, 0.25)[:, None]
fingerprints[:, pharmacophore] = chosen
rows = sp.csr_array(fingerprints)
train, test = slice(0, 2000), slice(2000, None)

values = {}
for kernel in ("tanimoto", "rbf"):
    model = bigsvm.SVC(kernel=kernel, C=10).fit(rows[train], active[train])
    values[kernel] = np.asarray(model.decision_function(rows[test]))
    accuracy = np.mean((values[kernel] > 0) == active[test])
    print(f"{kernel}: {len(model.support_)} support vectors, accuracy {accuracy:.1%}")

# %%
# Decision values of molecules that were held out.
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
for axis, (kernel, of_kernel) in zip(axes, values.items(), strict=True):
    bins = np.linspace(-2.5, 2.5, 41)
    axis.hist(of_kernel[~active[test]], bins, alpha=0.7, label="inactive")
    axis.hist(of_kernel[active[test]], bins, alpha=0.7, label="active")
    axis.axvline(0, color="black", linestyle="--")
    axis.set(title=kernel, xlabel="decision value")
axes[0].set_ylabel("molecules")
axes[0].legend()
