"""The dual problems: what a violation is, and how the problem on a working set is solved."""
