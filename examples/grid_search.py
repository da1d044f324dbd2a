"""`bigsvm.SVC` in scikit-learn's own tools: scaled columns, C and gamma by cross-validation.

python examples/grid_search.py
"""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bigsvm


def main() -> None:
    """Search, then test the best on rows that the search has not seen."""
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), bigsvm.SVC()),
        {"svc__C": [0.1, 1, 10, 100], "svc__gamma": [0.001, 0.01, 0.1]},
        cv=3,
    )
    search.fit(X, y)
    print(f"best: {search.best_params_}, cross-validated accuracy {search.best_score_:.4f}")
    print(f"accuracy on the test rows: {search.score(X_test, y_test):.4f}")


if __name__ == "__main__":
    main()
