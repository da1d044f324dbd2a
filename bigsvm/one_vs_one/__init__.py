"""One against one: a machine for each two classes.

The input is rows ordered by class and a problem for each class pair; the output is the log of all
solved pairs. `small` solves pairs of small classes in compiled code, `bigsvm.fit.pair_training` the
others, several at once; `log` is their checkpoint. A new way to solve a class pair has its place
beside `small`.
"""
