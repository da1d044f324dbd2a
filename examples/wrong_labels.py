"""
Wrong labels among digits
=========================

Crammer and Singer's machine gives each support vector shares of the classes that it could belong
to. The farther they are from its label, the more doubtful is the label. Here 20 digits get a wrong
one, and are looked for among the 40 rows that are doubted most.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import bigsvm

WRONG = 20

images, digits = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
wrong = rng.choice(len(digits), WRONG, replace=False)
labels = digits.copy()
labels[wrong] = (digits[wrong] + rng.integers(1, 10, WRONG)) % 10

classifier = bigsvm.CrammerSingerSVC(C=10, gamma=0.05).fit(images / 16, labels)
order = np.argsort(-classifier.label_doubt_, kind="stable")[: 2 * WRONG]
doubted = classifier.support_[order]
print(f"{classifier.stop_reason_}, {len(classifier.support_)} support vectors")
print(f"of {WRONG} wrong labels {np.isin(wrong, doubted).sum()} are in the {2 * WRONG} doubted")

# %%
# The rows that are doubted most, with their label and with what they look like to the machine. A
# green frame is a label that was made wrong.
figure, axes = plt.subplots(3, 8, figsize=(9, 4.4), layout="constrained")
for axis, row, shares in zip(
    axes.flat, doubted, classifier.label_distribution_[order], strict=False
):
    like = classifier.classes_[shares.argmax()]
    axis.imshow(images[row].reshape(8, 8), cmap="gray_r")
    axis.set_title(f"label {labels[row]}, like {like}", fontsize=8)
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        found = row in wrong
        spine.set(color="tab:green" if found else "0.7", linewidth=3 if found else 1)
for row, shares in zip(doubted[:3], classifier.label_distribution_[order[:3]], strict=True):
    like = classifier.classes_[shares.argmax()]
    print(f"row {row} is labelled {labels[row]}, looks like {like}, was {digits[row]}")
