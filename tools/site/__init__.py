"""The documentation's site: its pages, made of the Markdown of this repository, and their checks.

`pages` says which section of the guide is on which page, `markdown` cuts and links them,
`reference` writes the pages of public names, commands and packages, and `check` walks built pages.
``docs/conf.py`` calls them; the texts themselves are in ``docs/`` and in docstrings, once.
"""
