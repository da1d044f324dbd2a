"""Find labels that are wrong: Crammer and Singer's machine tells which to doubt.

python examples/wrong_labels.py
"""

import numpy as np
from sklearn.datasets import load_digits

import bigsvm

WRONG = 20


def main() -> None:
    """Mislabel some digits, and look for them among the rows whose labels are doubted most."""
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
    for row, shares in zip(doubted[:3], classifier.label_distribution_[order[:3]], strict=True):
        like = classifier.classes_[shares.argmax()]
        print(f"row {row} is labelled {labels[row]}, looks like {like}, was {digits[row]}")


if __name__ == "__main__":
    main()
