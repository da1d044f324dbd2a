"""
My model is bad: what now?
==========================

A run that has converged has found the best model *for its parameters*. These may be wrong for the
data. Look for what you see, and compare the pictures: on the left is the bad model, on the right
the one with the remedy. Where a run is certain of a cause, it ends with an ``AdviceWarning``;
`the list of these <../guide/advice.html>`__ is in the guide.

============================================  ==============================================
what you see                                  what to try
============================================  ==============================================
a poor score, columns in different units      `scale the columns <#columns-are-not-scaled>`__
good on training rows, poor on others         `a smaller gamma or C <#c-and-gamma>`__
poor on training rows too                     `a larger C or gamma <#c-and-gamma>`__
imbalance: a rare class hardly predicted      `weights <#few-rows-of-one-class>`__
nearly all support vectors are at C           `a larger C <#all-rows-are-at-c>`__
one class for every row                       `a larger C, weights <#one-class-is-predicted>`__
good in cross-validation, poor on new rows    `look for leakage <#leakage>`__
predictions that hardly differ (regression)   `scale the targets <#targets-are-large>`__
============================================  ==============================================
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes, load_wine, make_classification, make_moons
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import GroupKFold, KFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bigsvm

# The models on the left are bad on purpose.
warnings.simplefilter("ignore", bigsvm.AdviceWarning)


def two_axes(titles: tuple[str, str], **options: object) -> tuple[plt.Axes, plt.Axes]:
    """Axes for a picture of before and after."""
    _, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", **options)
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title)
    return axes


def confusions(models: tuple, X: np.ndarray, y: np.ndarray, titles: tuple[str, str]) -> None:
    """Draw the confusion matrices of two models."""
    axes = two_axes(titles)
    for axis, model in zip(axes, models, strict=True):
        ConfusionMatrixDisplay.from_predictions(
            y, model.predict(X), ax=axis, colorbar=False, cmap="Blues"
        )


# %%
# Columns are not scaled
# ----------------------
#
# Kernels compare rows by distances or products. A column with large values decides them alone. Of
# the wines below, the column proline is in the hundreds and the others are small. Put a scaler
# before the estimator, or scale a store with ``bigsvm scale``: the model remembers the scaling.
X, y = load_wine(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
raw = bigsvm.SVC().fit(X, y)
scaled = make_pipeline(StandardScaler(), bigsvm.SVC()).fit(X, y)
scores = [model.score(X_test, y_test) for model in (raw, scaled)]
print("accuracy on test rows:", *(f"{score:.1%}" for score in scores))
confusions(
    (raw, scaled), X_test, y_test, (f"raw: {scores[0]:.0%}", f"scaled columns: {scores[1]:.0%}")
)

# %%
# C and gamma
# -----------
#
# With a large ``gamma`` only rows that are close together are alike, and the model learns each row
# by heart. With a small one all rows are alike. ``C`` is how much it costs to be on the wrong side.
# Choose both by cross-validation, as ``bigsvm search`` and ``SearchCV`` do.
X, y = make_moons(400, noise=0.25, random_state=0)
X_test, y_test = make_moons(2000, noise=0.25, random_state=1)
models = [bigsvm.SVC(C=10, gamma=100).fit(X, y), bigsvm.SVC(C=1, gamma=1).fit(X, y)]
titles = tuple(
    f"gamma {model.gamma}: training {model.score(X, y):.0%}, test {model.score(X_test, y_test):.0%}"
    for model in models
)
print(*titles, sep="\n")
for axis, model in zip(two_axes(titles, sharey=True), models, strict=True):
    DecisionBoundaryDisplay.from_estimator(
        model, X, response_method="decision_function", ax=axis, cmap="coolwarm", alpha=0.6,
        plot_method="pcolormesh", vmin=-1.5, vmax=1.5,
    )  # fmt: skip
    axis.scatter(*X.T, c=y, s=8, cmap="coolwarm", edgecolors="black", linewidths=0.3)

# %%
# Few rows of one class
# ---------------------
#
# Where one class is rare (imbalanced classes), a model makes few errors if it hardly ever predicts
# that class.
# ``class_weight="balanced"`` gives the classes the same total weight. More of the rare class are
# found, and more of the others are taken for it: look at the recall of each class, or at the area
# under the ROC curve, not at the accuracy. Where the costs of the two errors are known, give them
# as weights: ``class_weight={0: 1, 1: 20}``.
X, y = make_classification(
    4000, n_features=8, n_informative=4, weights=[0.96], flip_y=0.01, class_sep=0.6, random_state=3
)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
plain = bigsvm.SVC(C=1, gamma=0.1).fit(X, y)
weighted = bigsvm.SVC(C=1, gamma=0.1, class_weight="balanced").fit(X, y)
recalls = [np.mean(np.asarray(m.predict(X_test))[y_test == 1] == 1) for m in (plain, weighted)]
print("of the rare class are found:", *(f"{recall:.1%}" for recall in recalls))
confusions(
    (plain, weighted),
    X_test,
    y_test,
    (f"no weights: {recalls[0]:.0%} found", f"balanced: {recalls[1]:.0%} found"),
)

# %%
# All rows are at C
# -----------------
#
# If nearly every row is a support vector with the largest coefficient that ``C`` allows, ``C`` is
# too small for the data: the model is an average of all rows, and changes with each of them.
X, y = make_moons(400, noise=0.2, random_state=0)
models = [bigsvm.SVC(C=C, gamma=1).fit(X, y) for C in (0.002, 1)]
shares = [np.mean(np.abs(np.asarray(m.dual_coef_)) >= m.C) * len(m.support_) / 400 for m in models]
titles = tuple(
    f"C {m.C}: {share:.0%} of rows at C" for m, share in zip(models, shares, strict=True)
)
print(*titles, sep="\n")
for axis, model in zip(two_axes(titles, sharey=True), models, strict=True):
    DecisionBoundaryDisplay.from_estimator(
        model, X, response_method="decision_function", ax=axis, cmap="coolwarm", alpha=0.6,
        plot_method="pcolormesh", vmin=-1.5, vmax=1.5,
    )  # fmt: skip
    axis.scatter(*X[model.support_].T, s=8, color="black", linewidths=0)

# %%
# One class is predicted
# ----------------------
#
# With a small ``C``, it can be that no row gets the rare class. A larger ``C`` or weights help.
# If decision values rank the rows well, a threshold of your own on ``decision_function`` helps too.
X, y = make_classification(
    3000, n_features=6, n_informative=4, weights=[0.9], class_sep=0.8, random_state=0
)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
models = (bigsvm.SVC(C=0.001, gamma=0.1).fit(X, y), bigsvm.SVC(C=10, gamma=0.1).fit(X, y))
predicted = [np.unique(np.asarray(model.predict(X_test))) for model in models]
print("classes that are predicted:", *predicted)
confusions(models, X_test, y_test, ("C 0.001", "C 10"))

# %%
# Leakage
# -------
#
# Rows that belong together must not be on both sides of a split. Here each of 60 patients has 20
# nearly equal rows, and a label that has nothing to do with them. A random split finds the patient
# again and scores well; a split by patient shows that nothing was learned. ``cv=GroupKFold()`` and
# ``bigsvm cv --groups`` split by groups. Scaling, choosing columns and filling missing values can
# leak too: do them inside of the folds, in a pipeline.
rng = np.random.default_rng(0)
patients = np.repeat(np.arange(60), 20)
X = rng.normal(size=(60, 5))[patients] + 0.1 * rng.normal(size=(1200, 5))
y = rng.permutation(np.arange(60) % 2)[patients]
model = bigsvm.SVC(C=10, gamma=1)
random_folds = cross_val_score(model, X, y, cv=KFold(5, shuffle=True, random_state=0))
by_patient = cross_val_score(model, X, y, groups=patients, cv=GroupKFold(5))
print(f"random folds {random_folds.mean():.1%}, folds by patient {by_patient.mean():.1%}")
titles = ("rows at random", "by patient")
for axis, folds in zip(two_axes(titles, sharey=True), (random_folds, by_patient), strict=True):
    axis.bar(np.arange(1, 6), folds)
    axis.axhline(0.5, color="black", linestyle="--", linewidth=0.8)
    axis.set(xlabel="fold", ylim=(0, 1.05))

# %%
# Targets are large
# -----------------
#
# ``C`` bounds each coefficient of a regression, and so how far a prediction can be from the middle.
# Targets of thousands need a ``C`` of thousands. It is easier to standardise them:
# ``TransformedTargetRegressor`` of scikit-learn does so, and gives predictions in the old units.
X, y = load_diabetes(return_X_y=True)
X, y = StandardScaler().fit_transform(X), 1000.0 * y
X, X_test, y, y_test = train_test_split(X, y, random_state=0)
middle, scale = y.mean(), y.std()
raw = bigsvm.SVR(gamma=0.01).fit(X, y)
scaled = bigsvm.SVR(gamma=0.01).fit(X, (y - middle) / scale)
answers = (raw.predict(X_test), scaled.predict(X_test) * scale + middle)
titles = tuple(
    f"{name}: R² {1 - np.mean((y_test - answer) ** 2) / y_test.var():.2f}"
    for name, answer in zip(("targets as they are", "targets standardised"), answers, strict=True)
)
print(*titles, sep="\n")
for axis, answer in zip(two_axes(titles, sharex=True, sharey=True), answers, strict=True):
    axis.scatter(y_test, answer, s=8)
    axis.plot([y.min(), y.max()], [y.min(), y.max()], color="black", linewidth=0.8)
    axis.set(xlabel="target", ylabel="predicted")
    axis.locator_params(nbins=5)
