"""Executors: compute the sums of a pass over the rows, block by block.

``K(rows, partners) @ weights`` of a block depends only on the rows of the block, the partners and
the weights. The caller adds up what an executor returns, and counts what it cost. `local` computes
in this process. Results come in the order of the rows: so the place where a pass was interrupted is
one number.
"""
