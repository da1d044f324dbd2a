"""
Texts by their words
====================

Which part of SciPy does a function belong to? The texts are the first sentences of the docstrings
of the installed SciPy. TF-IDF makes a sparse row of each, and the cosine kernel compares which
words two texts share.
"""

import inspect
from importlib import import_module

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split

import bigsvm

PARTS = ("fft", "integrate", "linalg", "ndimage", "optimize", "signal", "stats")
texts, parts = [], []
for part in PARTS:
    module = import_module(f"scipy.{part}")
    for name in module.__all__:
        text = inspect.getdoc(getattr(module, name)) or ""
        texts.append(" ".join(text.split("\n\n")[:2]))
        parts.append(part)
words = TfidfVectorizer(
    token_pattern=r"[a-z]{3,}", stop_words=["scipy", *PARTS], min_df=2, sublinear_tf=True
)
rows = words.fit_transform(texts)
parts = np.array(parts)
print(f"{rows.shape[0]} texts, {rows.shape[1]} words, {rows.nnz / np.prod(rows.shape):.1%} occur")

train, test = train_test_split(np.arange(len(parts)), random_state=0, stratify=parts)
model = bigsvm.SVC(kernel="cosine", C=10).fit(rows[train], parts[train])
print(f"{model.stop_reason_}, accuracy {model.score(rows[test], parts[test]):.1%}")

# %%
# What is taken for what.
figure, axis = plt.subplots(figsize=(6, 5), layout="constrained")
ConfusionMatrixDisplay.from_estimator(
    model, rows[test], parts[test], ax=axis, colorbar=False, xticks_rotation=30, cmap="Blues"
)
axis.set_title("texts held out")
