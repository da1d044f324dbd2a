"""A slow, obvious parser of LIBSVM text: what `bigsvm.core.text` must agree with."""

import re

from bigsvm.core.text import MAX_INDEX, TextFault

NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
TOKEN = re.compile(rb"[^ \t\r\v\f]+")


def parse(text, *, smallest_index=0, largest=float("inf")):
    """Rows [(label, [(index, value), …]), …], and the first problem with its offset, or None."""
    rows = []
    start = 0
    for line in text.split(b"\n")[:-1]:
        row, problem = _line(line, smallest_index, largest)
        if problem:
            return rows, (problem[0], start + problem[1])
        if row:
            rows.append(row)
        start += len(line) + 1
    return rows, None


def _line(line, smallest_index, largest):
    body, hash_sign, comment = line.partition(b"#")
    tokens = [(match.start(), match[0]) for match in TOKEN.finditer(body)]
    row = None
    if tokens:
        at, label = tokens.pop(0)
        if not NUMBER.fullmatch(label) or abs(float(label)) == float("inf"):
            return None, (TextFault.LABEL, at)
        if label.strip(b"+-").isdigit() and int(label) != float(label):
            return None, (TextFault.LABEL_ROUNDED, at)
        row = (float(label), [])
    for at, token in tokens:
        if not row[1] and token.startswith(b"qid:"):
            if not re.fullmatch(rb"qid:[0-9]+", token):
                return None, (TextFault.QID, at)
            continue
        entry = re.match(rb"([0-9]+):", token)
        if not entry:
            return None, (TextFault.INDEX, at)
        index = int(entry[1])
        if index > MAX_INDEX:
            return None, (TextFault.INDEX_TOO_LARGE, at)
        if index < smallest_index:
            return None, (TextFault.INDEX_TOO_SMALL, at)
        if row[1] and index <= row[1][-1][0]:
            return None, (TextFault.ORDER, at)
        value = token[entry.end() :]
        if not NUMBER.fullmatch(value):
            return None, (TextFault.VALUE, at + entry.end())
        if abs(float(value)) >= largest:
            return None, (TextFault.RANGE, at + entry.end())
        row[1].append((index, float(value)))
    if b"\0" in comment:
        return None, (TextFault.NUL, len(body) + len(hash_sign) + comment.index(b"\0"))
    return row, None
