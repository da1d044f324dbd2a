"""Configuration of Sphinx: the site of the documentation.

    python -m sphinx -W --keep-going docs build/site                    # runs the examples
    python -m sphinx -W --keep-going -t unrun docs build/site           # does not

Pages that are made of other texts are written into folders of ``docs`` first: see ``tools/site``.
"""

import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from bigsvm.version import __version__  # noqa: E402 (found by the line above)
from tools.site.build import CUT, Site  # noqa: E402

URLS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"].get("urls", {})
SOURCE = URLS.get("Source", "")
SITE = Site(REPOSITORY, f"{SOURCE}/blob/main" if SOURCE and ".invalid" not in SOURCE else "")

project = "bigsvm"
author = "bigsvm developers"
copyright = author
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "tools.site.mathml",
]
exclude_patterns = [*CUT, "gallery/*.ipynb", "gallery/*.py", "gallery/*.json", "gallery/*.zip"]
default_role = "py:obj"
smartquotes = False  # values of parameters are in quotes
nitpicky = True
# Names of other packages, and words in single backticks that are no names, have no page here.
nitpick_ignore_regex = [("py:obj", ".*"), ("py:class", r"(?!bigsvm\b).*"), ("py:exc", ".*")]

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
# The changelog begins with a heading of the third level below one of the first in places.
suppress_warnings = ["myst.header", "config.cache"]

autodoc_typehints = "none"  # docstrings say them, in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": ".*",
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
    "plot_gallery": not tags.has("unrun"),  # noqa: F821 (given by Sphinx)
    "write_computation_times": False,
    "abort_on_example_error": True,
    "copyfile_regex": "",
}

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = f"bigsvm {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "bigsvm"},
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    # Pages of wide tables and pictures have the whole width.
    "secondary_sidebar_items": {"**": ["page-toc"], "records": [], "comparison": []},
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "start": []}


def relinked(app: Sphinx, page: str, source: list[str]) -> None:
    """Lead the links of a page that is committed to pages of the site."""
    path = Path(app.env.doc2path(page))
    if path.parent == REPOSITORY / "docs" and path.suffix == ".md":
        source[0] = SITE.relinked(source[0], f"docs/{path.name}", page)


def setup(app: Sphinx) -> None:
    """Write the made pages before Sphinx looks for pages."""
    SITE.write()
    app.connect("source-read", relinked)
