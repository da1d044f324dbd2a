"""The papers' modes: what runs only if a parameter asks for an algorithm as a paper has it.

`stepwise` is the core vector machine, Frank-Wolfe and modified Frank-Wolfe with a step for each
sample. `whole` takes all rows as one working set (``working_set="all"``). `disk` keeps its kernel
rows in a `row_file` if `costs` finds it worth its time, and `shrinking` solves it with rows left
out. `bigsvm.fit.choices` and `bigsvm.fit.trainer` choose among them; no other module imports them
(`tools/check_layers.py`).
"""
