#!/usr/bin/env python3
"""Writes the tables of the pages from the files that were measured, and compares the numbers in their text with these.

    python3 sweep/pages/pages.py [--check] [SPECIFICATION...]    # `make pages`; default: all of this folder

Each page has a specification, sweep/pages/NAME.txt, of paragraphs with blank lines between. A line that begins with
blanks continues the line before, and # begins a comment.

    page: sweep/results/h200/README.md
    passes = passes.tsv                   the name of a file, from the page's folder; several, or *, are joined
    slow = passes('ms', rows=8)           or of the value of an expression

    table: decode                         a table, which stands on the page between <!-- table: decode --> and <!-- end -->
    each rows | keys: 1 | 512; 8 | 4096   its rows: here two
    rows: rows                            a column: its heading, and a Python expression
    FAST, ms [2]: passes('ms', case='fast_decode', context_tokens=keys)      [2]: it has two decimals

    The floor is {2} ms.                  a phrase of the page, with {decimals} instead of numbers, and their expressions
    = passes('floor_ms', case='fast_decode', rows=1)

`each row of passes where ms > 4` makes a row of the table for each such row of a file, whose columns are names then.
Several lines `each` are combined. Instead of them a table may have `header A | B` and lines `row CELL | CELL`, in which
{EXPRESSION; DECIMALS} is a number. Decimals may also be g2, two significant digits, or +1, with a sign.

An expression has Python's functions, median, mean, exp, log and these:
    passes('ms', rows=8)       the value of a column in the one row of the file where other columns have these values; a
                               name of `each` that is a column is such a condition, too; '* offline' is any text that ends so
    passes.all(...)            the values of all rows with these values, as a list; passes.sum(...) is their sum
                               (joined files have a column `file`); without such a row, or with an empty cell or nan in
                               one, they are errors, as is a sum of nothing
    passes.maybe('ms', ...)    as passes('ms', ...), and an empty cell if there is no such row, or only empty cells
    head('passes.tsv', 'date') what a line `# date: ...` at the head of a file says; an empty cell if there is none

With --check nothing is written, and what would change is an error. A phrase that is not on its page is always one, and
so is, as a control, a phrase that is still there when one number has changed in its last digit.
"""
import argparse
import contextlib
import fnmatch
import glob
import itertools
import math
import os
import re
import statistics
import sys

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")
TABLE = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end -->)", re.S)
ROUNDING = r"\+?g?\d+"


def value_of(text):
    """A number if the text is one, None if it is empty or nan."""
    if NUMBER.match(text):
        return float(text) if re.search(r"[.eE]", text) else int(text)
    return None if text in ("", "nan", "-nan") else text


def head(path, key):
    """What the manifest of a file says of a key, or None."""
    with open(path, encoding="utf-8") as file:
        match = re.search(rf"^# {re.escape(key)}: (.*)", file.read(), re.M)
    return value_of(match[1]) if match else None


def total(values):
    """The sum that expressions have: of nothing it is an error, not 0."""
    values = list(values)
    if not values:
        raise ValueError("no values to add")
    return sum(values)


class Row(dict):
    """A row of a file as a dictionary."""

    def __missing__(self, column):
        raise ValueError(f"no column {column} in {self['file']}")


class File:
    """The rows of one or several files, in which empty cells are None. `bound` has the names that `each` binds."""

    def __init__(self, paths, bound):
        self.rows, self.paths, self.bound, self.columns = [], " ".join(paths), bound, {"file"}
        for path in paths:
            with open(path, encoding="utf-8") as file:
                columns, *lines = [line.rstrip("\n").split("\t") for line in file if line[0] not in "#\n"] or [[]]
            self.columns.update(columns)
            if any(len(line) > len(columns) for line in lines):
                raise ValueError(f"a row of {path} has more cells than columns")
            for line in lines:
                self.rows.append(Row(itertools.zip_longest(["file", *columns], [path, *map(value_of, line)])))

    def select(self, column, where):
        """The cells of a column in the rows with these values."""
        for name in (column, *where):
            if name not in self.columns:
                raise ValueError(f"no column {name} in {self.paths}")
        conditions = {**{name: value for name, value in self.bound.items() if name in self.columns}, **where}

        def holds(row, name, value):
            if isinstance(value, (list, tuple, set)):
                return any(holds(row, name, one) for one in value)
            if isinstance(value, str) and "*" in value:
                return fnmatch.fnmatchcase(str(row.get(name)), value)
            return row.get(name) == value
        return [row.get(column) for row in self.rows if all(holds(row, *pair) for pair in conditions.items())]

    def all(self, column, **where):
        values = self.select(column, where)
        if not values or None in values:
            raise self.wrong("an empty cell" if values else "0 rows", column, where)
        return values

    def sum(self, column, **where):
        return sum(self.all(column, **where))

    def maybe(self, column, **where):
        return self(column, **where) if any(value is not None for value in self.select(column, where)) else None

    def __call__(self, column, **where):
        values = self.all(column, **where)
        if len(values) > 1:
            raise self.wrong(f"{len(values)} rows", column, where)
        return values[0]

    def wrong(self, what, column, where):
        return ValueError(f"{self.paths} has {what} for {column}, {where}, {self.bound}")


def text_of(value, rounding=None, changed=False):
    """A value as it stands on a page. `changed`: as a control, another one in the last digit."""
    if value is None or isinstance(value, str):
        return value or ""
    if rounding and "g" in rounding:
        return f"{1.5 * value + 1 if changed else value:.{rounding[1:]}g}"
    if rounding is None and isinstance(value, float) and value != int(value):
        raise ValueError(f"{value}: say how many decimals it has")
    decimals = int((rounding or "0").lstrip("+"))
    value = value * (1 + 1e-12) + (10 ** -decimals if changed else 0)  # halves go up
    sign = "+" if rounding and rounding[0] == "+" and value > 0 else ""
    return sign + re.sub(r"^-(?=[0.]*$)", "", f"{value:,.{decimals}f}")


class Names(dict):
    """What expressions know: files, and what `each` binds."""

    def __init__(self):
        super().__init__(median=statistics.median, mean=statistics.fmean, exp=math.exp, log=math.log, head=head,
                         sum=total)
        self.bound = {}

    def value(self, expression, **bound):
        try:
            # One dictionary of names, because functions inside of an expression do not see a second one.
            return eval(expression, {**self, **bound})  # pylint: disable=eval-used
        except NameError as error:
            name, row = str(error).split("'")[1], bound.get("row")
            if row and name not in row:
                raise ValueError(f"no column {name} in {row['file']}") from error
            raise

    def define(self, line):
        """A line NAME = FILE... or NAME = EXPRESSION."""
        name, equals, what = line.partition(" = ")
        if not equals:
            raise ValueError("what does this line mean")
        if re.match(r"\S+\.tsv( \S+\.tsv)*$", what):
            paths = [path for pattern in what.split() for path in sorted(glob.glob(pattern)) or [pattern]]
            self[name] = File(paths, self.bound)
        else:
            self[name] = self.value(what)

    def each(self, line):
        """What the rows of a line `each` bind."""
        match = re.match(r"row of (\w+)( where (.*))?$", line)
        if match:
            return [{**row, "row": row} for row in self[match[1]].rows
                    if not match[3] or self.value(match[3], row=row, **row)]
        keys, values = line.split(": ", 1)
        keys = [key.strip() for key in keys.split("|")]
        rows = [[value_of(value.strip()) for value in row.split("|")] for row in values.split(";")]
        if any(len(row) != len(keys) for row in rows):
            raise ValueError(f"not all rows have {len(keys)} values: each {line}")
        return [dict(zip(keys, row)) for row in rows]


@contextlib.contextmanager
def inside(folder):
    """Names of files are those from here."""
    here = os.getcwd()
    os.chdir(folder or ".")
    try:
        yield
    finally:
        os.chdir(here)


def table(lines, names):
    """The lines of a table."""
    header, rows, each, columns = None, [], [{}], []
    for line in lines:
        column = re.match(rf"(.+?)(?: \[({ROUNDING})\])?: (.*)$", line)
        if line.startswith("each "):
            each = [{**row, **more} for row in each for more in names.each(line[5:])]
        elif line.startswith("header "):
            header = line[7:]
        elif line.startswith("row "):
            rows.append(re.sub(rf"\{{([^{{}}]*?)(?:; ({ROUNDING}))?\}}",
                               lambda match: text_of(names.value(match[1]), match[2]), line[4:]))
        elif column:
            columns.append(column.groups())
        else:
            raise ValueError(f"what does this line mean: {line}")
    expressions = " ".join(expression for _, _, expression in columns)
    known = {column for file in names.values() if isinstance(file, File) for column in file.columns}
    for name in {name for bound in each[:1] if "row" not in bound for name in bound if name not in known}:
        if not re.search(rf"\b{name}\b", expressions):
            raise ValueError(f"{name} of each is a column of no file, and no expression uses it")
    for bound in each if columns else []:
        header = " | ".join(name for name, _, _ in columns)
        names.bound.clear()
        names.bound.update({} if "row" in bound else bound)
        rows.append(" | ".join(text_of(names.value(expression, **bound), rounding)
                               for _, rounding, expression in columns))
    if not header or not rows:
        raise ValueError("the table has no rows")
    lines = [header, " | ".join("---" for _ in header.split(" | "))] + rows
    return "".join(re.sub(r"\|  (?=\|)", "| ", f"| {line} |\n") for line in lines)


def stands(phrase, text):
    """Says whether a phrase is in a text, not with its first or last digit inside of a longer number there."""
    before = r"(?<![\w.,+−-])" if re.match(r"[-+]?\d", phrase) else ""
    after = r"(?!\w|[.,]\d)" if re.search(r"\d$", phrase) else r"(?!\d)" if re.search(r"\d[.,]$", phrase) else ""
    return re.search(before + re.escape(phrase) + after, text) is not None


def check_phrase(text, phrase, values):
    """Yields what is wrong with a phrase: it is not on the page, or it is with a number changed in its last digit."""
    parts = re.split(rf"\{{({ROUNDING})\}}", phrase)
    if len(values) != len(parts) // 2:
        raise ValueError(f"{len(values)} values")
    for change in range(len(values) + 1):
        texts = [text_of(value, parts[2 * i + 1], i + 1 == change) for i, value in enumerate(values)] + [""]
        wanted = "".join(part + number for part, number in zip(parts[::2], texts))
        if stands(wanted, text) != (change == 0):
            yield f"has {'also' if change else 'not'}: {wanted}"


def paragraphs(path):
    """The paragraphs of a specification as lists of lines, without comments, and with continued lines joined."""
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"^#.*\n", "", file.read(), flags=re.M)
    return [re.sub(r"\n +", " ", paragraph.strip()).split("\n") for paragraph in re.split(r"\n\n+", text)]


class Page:
    """A page and its specification. `others` has those of the pages before."""

    def __init__(self, specification, check, others):
        self.specification, self.check, self.path, self.text = specification, check, None, None
        self.wrong, self.tables, self.numbers, self.names = [], {}, 0, Names()
        with self.trying():
            self.read(others)

    @contextlib.contextmanager
    def trying(self, *where):
        """Notes in one line what fails; an expression may in any way."""
        try:
            yield
        except Exception as error:  # pylint: disable=broad-exception-caught
            what = f"cannot read {error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            kind = [] if isinstance(error, (OSError, ValueError)) else [type(error).__name__]
            self.wrong.append(" ".join(": ".join([*kind, what, *where]).split()))

    def read(self, others):
        (first, *files), *rest = paragraphs(self.specification)
        if not first.startswith("page: "):
            raise ValueError("its first line does not name a page")
        self.path = first.removeprefix("page: ")
        other = others.setdefault(os.path.realpath(self.path), self.specification)
        if other != self.specification:
            raise ValueError(f"{other} is for this page, too")
        with open(self.path, encoding="utf-8") as file:
            self.text = file.read()
        with inside(os.path.dirname(self.path)):
            for line in files:
                with self.trying(line):
                    self.names.define(line)
                if self.wrong:
                    return
            for lines in rest:
                with self.trying(lines[0]):
                    self.take(lines)
                self.names.bound.clear()
        self.write()

    def take(self, lines):
        if lines[0].startswith("table: "):
            name = lines[0].removeprefix("table: ")
            self.tables[name] = None  # if the next line fails
            self.tables[name] = table(lines[1:], self.names)
            return
        phrase = " ".join(line for line in lines if not line.startswith("= "))
        values = [value for line in lines if line.startswith("= ") for value in self.names.value(f"({line[2:]},)")]
        self.numbers += len(values)
        self.wrong += check_phrase(" ".join(self.text.split()), phrase, values)

    def write(self):
        """Writes the tables, or says what would change."""
        found = {match[2]: match[3] for match in TABLE.finditer(self.text)}
        if len(found) != self.text.count("<!-- table: ") or len(found) != self.text.count("<!-- end -->"):
            self.wrong.append("the marks of tables are no pairs, or a name stands twice")
            return
        self.wrong += [f"table {name} stands only on the page, or only in the specification"
                       for name in sorted(set(found) ^ set(self.tables))]
        for name in sorted(name for name in found if self.tables.get(name)):
            lines = itertools.zip_longest(found[name].split("\n"), self.tables[name].split("\n"))
            new = [new for old, new in lines if old != new][:1]
            if new and self.check:
                self.wrong.append(f"table {name} is not that of the files; make pages writes: {new}")
        text = TABLE.sub(lambda match: match[1] + (self.tables.get(match[2]) or match[3]) + match[4], self.text)
        if text != self.text and not self.check:
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(text)
            print(f"{self.path}: written")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if something would change")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    parser.add_argument("specifications", nargs="*")
    options = parser.parse_args()
    os.chdir(options.root)
    pages, others = [], {}
    for path in options.specifications or sorted(glob.glob("sweep/pages/*.txt")) or ["sweep/pages/*.txt"]:
        pages.append(Page(path, options.check, others))
        for wrong in pages[-1].wrong:
            print(": ".join(filter(None, [path, pages[-1].path, wrong])))
    print(f"{len(pages)} pages with {sum(len(page.tables) for page in pages)} tables and "
          f"{sum(page.numbers for page in pages)} numbers in their text")
    return any(page.wrong for page in pages)


if __name__ == "__main__":
    sys.exit(main())
