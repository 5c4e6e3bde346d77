#!/usr/bin/env python3
"""Checks that pages say of which revision of the CUDA kernels their files are. Exit status 1 if something is wrong.

    python3 tests/revisions.py [--root FOLDER] PAGE...    # prints what is wrong: page, line, file

A file that was measured on a GPU has lines `# cuda kernels: N` and, if it is new, `# date: YYYY-MM-DD`. A section of a
page is what stands between two headings. It names a file as `NAME.tsv`, from the page's folder or from the root.
- Wherever a file, or a list of files, stands before "revision N", as in `NAME.tsv`, revision N or `NAME.tsv` (revision
  N), N is theirs, and so is a date behind it. In a table with columns file and revision every row says this.
- On pages about GPUs every section names the revision of its files. If it names only one revision, all its files are
  of that. If it names several, each file stands before its own at least once.
- The bits of INVARIANT passes have changed, as CHANGED says. A section that names an older file about bits says that
  the "bits are not today's". So does README.md, if numbers.tsv says that it has figures of such a file.
"""
import argparse
import bisect
import fnmatch
import glob
import os
import re
import sys

GPU_PAGES = "sweep/results/h[12]00*/*.md"
CHANGED = ("sweep/results/h200/README.md", r"INVARIANT passes changed after revision (\d+) and not since")
ABOUT_BITS = re.compile(r"(determinism|scoring|sglang|margin|grid|ratio|ranks|drafts_bits)[^/]*$")
OLD_BITS = "bits are not today's"
FILE = r"`([^` ]+\.tsv)`"
BESIDE = re.compile(rf"((?:{FILE}(?:, | and ))*{FILE})(?:, | \()revision (\d+)\w?(?:, (\d+-\d+-\d+))?")


def manifest(path):
    """The revision and the date of a file; None where it has none."""
    with open(path, errors="replace") as file:
        head = "".join(line for line in file if line.startswith("#"))
    found = [re.search(rf"^# {key}: (\S+)", head, re.M) for key in ("cuda kernels", "date")]
    return [match and match[1] for match in found]


def named(name, page, files):
    """The files that a page calls so: a name may have stars."""
    for folder in (os.path.dirname(page), ""):
        yield from fnmatch.filter(files, os.path.normpath(os.path.join(folder, name)))


def sections(text):
    """Each section in one line, and where its lines begin there: pairs of a position and a line number."""
    lines, starts, in_table = "", [], False
    for number, line in enumerate(text.split("\n"), 1):
        if re.match("#+ ", line):
            yield lines, starts
            lines, starts = "", []
        line = re.sub(r"\[[^]]*\]\(([^) ]+\.tsv)\)", r"`\1`", line)  # a link is the file that it leads to
        in_table = line.startswith("|") and (in_table or line.startswith("| file | revision |"))
        if in_table:
            line = re.sub(r"` \| (\d+) \|( (\d+-\d+-\d+) \|)?", r"`, revision \1, \3 |", line, count=1)
        starts.append((len(lines), number))
        lines += " ".join(line.split()) + " "
    yield lines, starts


def check(page, text, files, changed, about_gpus, quoted):
    """Yields what is wrong with a page: a line number and words."""

    def old(path):
        return files[path][0] and int(files[path][0]) <= changed and ABOUT_BITS.search(path)

    for lines, starts in sections(text):
        said = set()

        def wrong(position, words):
            return starts[bisect.bisect(starts, (position, sys.maxsize)) - 1][1], words

        for match in BESIDE.finditer(lines):
            for name in re.finditer(FILE, match[1]):
                for path in named(name[1], page, files):
                    revision, date = files[path]
                    said.add(path)
                    position = match.start() + name.start()
                    if revision != match[4]:
                        yield wrong(position, f"{path} is of revision {revision}, not {match[4]}")
                    if match[5] and date != match[5]:
                        yield wrong(position, f"{path} is of {date}, not {match[5]}")
        revisions = set(re.findall(r"\b[Rr]evision (\d+\w?)", lines))
        for match in re.finditer(FILE, lines):
            paths = list(named(match[1], page, files))
            if about_gpus and not paths:
                yield wrong(match.start(), f"there is no file {match[1]}")
            for path in (path for path in paths if files[path][0]):
                what = f"{path} is of revision {files[path][0]}, "
                if old(path) and OLD_BITS not in lines:
                    yield wrong(match.start(), f"{what}and nothing says that its {OLD_BITS}")
                if about_gpus and path not in said and revisions != {files[path][0]}:
                    yield wrong(match.start(), what + ("which does not stand beside it" if revisions else
                                                       "and the section names none"))
    for path in sorted(quoted & set(files)):
        if old(path) and OLD_BITS not in " ".join(text.split()):
            yield 1, f"{path} is of revision {files[path][0]}, and nothing says that its {OLD_BITS}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=".")
    parser.add_argument("pages", nargs="+")
    arguments = parser.parse_args()
    os.chdir(arguments.root)
    files = {path: manifest(path) for path in glob.glob("sweep/**/*.tsv", recursive=True)}
    with open(CHANGED[0]) as file:
        changed = int(re.search(CHANGED[1], " ".join(file.read().split()))[1])
    with open("tests/numbers.tsv") as file:
        quotes = [line.split("\t") for line in file if line.startswith("README.md\t")]
    failed = False
    for page in arguments.pages:
        with open(page) as file:
            text = file.read()
        quoted = {path for quote in quotes if page == quote[0] for path in quote[2].split()}
        for line, words in check(page, text, files, changed, fnmatch.fnmatch(page, GPU_PAGES), quoted):
            print(f"{page}:{line}: {words}")
            failed = True
    sys.exit(failed)


main()
