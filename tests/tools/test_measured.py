"""`tools.measured`: the committed pages are what it writes, from figures that were printed."""

import json
import re
from xml.etree import ElementTree

import pytest

from tools import measured
from tools.measured import Row

TWO = """\
$ python -m tools.benchmarks two
AMD EPYC, 2 cores, 2 threads, Python 3.11.7

first: 100 rows

| who    | seconds          |
|--------|------------------|
| ours   | 0.45 [0.35-0.51] |
| theirs | > 9.15           |

second: 200 rows

| who  | seconds |
|------|---------|
| ours | 1.5     |
"""


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """A folder of printed texts with one text, `two`."""
    (tmp_path / "two.txt").write_text(TWO, encoding="utf-8")
    monkeypatch.setattr(measured, "TEXTS", tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", measured.PAGES, ids=lambda path: path.stem)
def test_the_page_is_what_the_script_writes(path):
    text = path.read_text(encoding="utf-8")
    assert measured.page(text) == text
    comments = re.findall("<!-- (?!pictures|end of pictures)", text)  # those are of comparison.py
    assert len(comments) == len(measured.SHOWN.findall(text)) >= 4


def test_what_is_below_a_comment_is_written_anew(texts):
    before, comment = "# A page\n\nWords.\n\n", '<!-- lines: ["two", "first"] -->\n\n'
    after = '## More\n\n<!-- rows: ["two", "second:", "ours"] -->\n'
    page = measured.page(f"{before}{comment}old\n\nolder\n\n{after}")
    assert page.startswith(f"{before}{comment}* first: 100 rows\n\n{after}\n[two.txt]")
    assert page.endswith(
        "second: 200 rows\n\n| who  | seconds |\n|------|---------|\n| ours | 1.5     |\n"
    )
    assert measured.page(page) == page


def test_the_picture_is_what_the_script_draws():
    assert measured.PICTURE.read_text(encoding="utf-8") == measured.picture()


def test_the_table_of_the_readme_is_what_the_script_writes():
    text = measured.README.read_text(encoding="utf-8")
    assert measured.readme_table() in text
    assert measured.readme(text) == text


def test_every_figure_of_the_readme_was_printed():
    text = measured.README.read_text(encoding="utf-8")
    printed = "\n".join(path.read_text(encoding="utf-8") for path in measured.TEXTS.glob("*.txt"))
    table = measured.readme_table()
    figures = re.findall(r"\d+\.\d+", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    assert set(re.findall(r"\d+\.\d+", table)) <= set(figures)
    versions = {"3.11"}  # of Python
    parameters = set(re.findall(r"=(\d+\.\d+)", text))
    missing = [
        each
        for each in set(figures) - versions - parameters
        if not re.search(rf"(?<![\d.]){re.escape(each)}(?![\d.])", printed)
    ]
    assert missing == []


@pytest.mark.parametrize(
    "section",
    measured.PAGES[0].read_text(encoding="utf-8").split("\n## ")[1:],
    ids=lambda section: section.partition("\n")[0],
)
def test_figures_of_a_sentence_are_figures_of_its_texts(section):
    texts = {json.loads(names)[0] for _, names in measured.SHOWN.findall(section)}
    printed = "\n".join(map(measured.read, texts))
    sentence = re.sub(r"`[^`]*`", "", section.partition("<!-- ")[0])  # parameters, in backticks
    assert [each for each in re.findall(r"\d+\.\d+", sentence) if each not in printed] == []


def test_the_picture_has_a_bar_for_every_time_in_the_table():
    picture = ElementTree.fromstring(measured.picture())
    words = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    seconds = [
        measured.figure(row.table, cell)
        for row in measured.ROWS
        for cell in row.cells[:3]
        if cell is not None
    ]
    assert set(seconds) <= set(words)
    bars = picture.findall("{http://www.w3.org/2000/svg}rect")
    assert len(bars) == len(seconds) + 3 + 1  # three in the legend, and the background


def test_a_table_is_found_by_words_before_it(texts):
    printed = measured.find("two", "second:")
    assert printed.command == "python -m tools.benchmarks two"
    assert printed.machine.startswith("AMD EPYC")
    assert printed.lines[-1] == "| ours | 1.5     |"


@pytest.mark.parametrize(("words", "number"), [(("third:",), 0), (("| who",), 2)])
def test_words_that_do_not_name_one_table_are_refused(texts, words, number):
    with pytest.raises(ValueError, match=rf"two\.txt has {number} tables"):
        measured.find("two", *words)


def test_a_figure_has_no_range(texts):
    first = ("two", "first:")
    assert measured.figure(first, (("ours",), "seconds")) == "0.45"
    assert measured.figure(first, (("theirs",), "seconds")) == "> 9.15"
    assert measured.figure(first, None) == "-"


def test_a_row_that_is_not_there_is_refused(texts):
    with pytest.raises(ValueError, match=r"two\.txt has 0 rows with \('nobody',\)"):
        measured.figure(("two", "first:"), (("nobody",), "seconds"))


def test_a_line_that_is_not_there_is_refused(texts):
    with pytest.raises(ValueError, match="no line with 'geometric mean'"):
        measured.shown("lines", "two", "geometric mean")


def test_a_number_of_rows_that_the_text_does_not_say_is_refused(texts, monkeypatch):
    cells = ((("ours",), "seconds"), None, None, None, None)
    monkeypatch.setattr(measured, "ROWS", (Row("made", 101, ("two", "first:"), cells),))
    with pytest.raises(ValueError, match="does not say 101 of made"):
        measured.readme_table()


def test_a_command_is_shown_once(texts):
    first, command = measured.shown("table", "two", "first:")
    second, _ = measured.shown("table", "two", "second:", command=command)
    assert first[0].startswith("[two.txt](../tools/benchmarks/two.txt): `python -m")
    assert second[0] == "second: 200 rows"
    assert first[1] == "first: 100 rows"


def test_only_some_rows_of_a_table(texts):
    paragraphs, _ = measured.shown("rows", "two", "first:", "theirs")
    assert paragraphs[-1].splitlines()[2:] == ["| theirs | > 9.15           |"]


def test_a_readme_without_the_comments_is_refused():
    with pytest.raises(ValueError, match="lacks"):
        measured.readme("# bigsvm\n")
