"""
Novelty detection: digits that training has not seen
====================================================

A one-class machine learns what rows look like, without labels. It is trained on images of the round
digits 0, 6 and 8, and then sees all ten. ``nu`` bounds the share of training rows that are outside.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

import bigsvm

images, digits = load_digits(return_X_y=True)
known = np.flatnonzero(np.isin(digits, [0, 6, 8]))
train, held_out = known[::2], known[1::2]
new = np.setdiff1d(np.arange(len(digits)), known)

detector = bigsvm.OneClassSVM(nu=0.05, gamma=0.1).fit(images[train] / 16)
of_known = detector.decision_function(images[held_out] / 16)
of_new = detector.decision_function(images[new] / 16)
truth = np.repeat([1, 0], [len(of_known), len(of_new)])
area = roc_auc_score(truth, np.concatenate([of_known, of_new]))
print(f"{detector.stop_reason_}; outside: {np.mean(of_known < 0):.1%} of 0, 6 and 8,")
print(f"{np.mean(of_new < 0):.1%} of the other digits; area under the ROC curve {area:.3f}")

# %%
# Values below 0 are outside. The pictures are the known digits that are least like the others,
# and the new ones that are taken for known.
figure = plt.figure(figsize=(9, 4.2), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[3, 2])
axis = left.subplots()
bins = np.linspace(min(of_new.min(), of_known.min()), max(of_new.max(), of_known.max()), 50)
axis.hist(of_known, bins, alpha=0.7, label="0, 6 and 8, held out")
axis.hist(of_new, bins, alpha=0.7, label="other digits")
axis.axvline(0, color="black", linestyle="--")
axis.set(xlabel="decision value", ylabel="rows")
axis.legend()
cells = right.subplots(2, 4)
for row_of_cells, rows, values, words in (
    (cells[0], held_out, of_known, "known, odd"),
    (cells[1], new, -of_new, "new, missed"),
):
    for cell, place in zip(row_of_cells, np.argsort(values), strict=False):
        cell.imshow(images[rows[place]].reshape(8, 8), cmap="gray_r")
        cell.set(xticks=[], yticks=[])
    row_of_cells[0].set_ylabel(words)
