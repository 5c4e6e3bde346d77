#!/usr/bin/env python3
"""Counts the sentences of the pages and of llm42.h, because prose that is chopped into telegrams is hard to read.

    python3 tests/sentences.py                   # a line for each page: sentences, median words, % of 8 words or fewer
    python3 tests/sentences.py --check [FILE...] # exit status 1 if a median is below 13 or more than 22% are short
    python3 tests/sentences.py --list FILE...    # every sentence with its number of words, the shortest first

The aim is a median of 14 to 16 words, and 12 to 18% of the sentences with 8 words or fewer. Blocks of code, tables,
headings (also bold ones in the line), images and list markers do not count, and `code` is one word. Of llm42.h the
first 200 lines count, and apart from them what sections say they own and keep (Owns and Invariant). Calls is left out,
because it is a list of names.
"""
import glob
import os
import re
import statistics
import sys

SHORT, LEAST_MEDIAN, MOST_SHORT = 8, 13, 22
HEAD_LINES = 200
ABBREVIATIONS = {"e.g.", "i.e.", "vs.", "Fig.", "Figs."}
LIST_MARKER = re.compile(r"^\s*([-*+]|\d+\.)\s+")


def markdown(lines):
    """The text of a page in paragraphs, of which a sentence never crosses the end."""
    paragraph, in_code = [], False
    for line in lines:
        if line.lstrip().startswith("```"):
            in_code = not in_code
        left_out = in_code or re.match(r"\s*(```|\||#|!\[|<)|\s*$", line)
        if left_out or LIST_MARKER.match(line):
            yield " ".join(paragraph)
            paragraph = []
        if not left_out:
            paragraph.append(LIST_MARKER.sub("", line))
    yield " ".join(paragraph)


def header(lines):
    """The same of the comment at the top of llm42.h. Lines that are indented further than prose are code or drawings,
    except in an item of a list. Lines with a gap inside are tables."""
    paragraph, in_item = [], False
    for line in lines:
        text = re.sub(r"^\s*/\*|\*/\s*$", "", line).strip()
        indent = len(line) - len(line.lstrip())
        item = indent == 3 and LIST_MARKER.match(line)
        title = re.match(r"[A-Z0-9 ,-]{4,}(\(.*\))?$", text)
        left_out = not text or "   " in text or title or (indent > 3 and not in_item) or indent < 3
        if left_out or item:
            yield " ".join(paragraph)
            paragraph = []
        in_item = bool(item) or (in_item and bool(text))
        if not left_out:
            paragraph.append(LIST_MARKER.sub("", text))
    yield " ".join(paragraph)


def sections(lines):
    """What the implementation's sections own and keep: the comments behind `// >>name`."""
    paragraph, label, in_head = [], None, False
    for line in lines:
        start = re.match(r"// (Owns|Calls|Invariant): ", line)
        in_head = line.startswith("// >>") or (in_head and line.startswith("//"))
        if start or not in_head:
            if label in ("Owns", "Invariant"):
                yield " ".join(paragraph)
            paragraph, label = [], start.group(1) if start and in_head else None
        if label:
            paragraph.append(re.sub(r"^// ((Owns|Calls|Invariant): )?", "", line))


def sentences(paragraph):
    """Splits a paragraph behind . ! and ? where the next word does not begin with a small letter."""
    text = re.sub(r"!\[[^]]*\]\([^)]*\)", "", paragraph)
    text = re.sub(r"^\s*\*\*[^*]*[.?:]\*\*", "", text)  # a heading in the line
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    words = text.split()
    sentence = []
    for i, word in enumerate(words):
        sentence.append(word)
        last = i + 1 == len(words)
        ends = re.search(r"[.!?][\"')*]*$", word) and word not in ABBREVIATIONS
        if last or (ends and (words[i + 1].startswith("code") or not re.match(r"[\"'(*]*[a-z]", words[i + 1]))):
            count = sum(bool(re.search(r"\w", w)) for w in sentence)
            if count:
                yield count, " ".join(sentence)
            sentence = []


def parts(path):
    """(name, paragraphs) of a file."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    if not path.endswith(".h"):
        return [(path, markdown(lines))]
    return [(path + ", head", header(lines[:HEAD_LINES])), (path + ", sections", sections(lines[HEAD_LINES:]))]


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    options = [a for a in sys.argv[1:] if a.startswith("--")]
    files = [a for a in sys.argv[1:] if not a.startswith("--")]
    if any(o not in ("--check", "--list") for o in options):
        sys.exit(__doc__)
    if not files:
        files = ["README.md", "examples/README.md", "tests/README.md", "sweep/README.md"]
        files += sorted(glob.glob("sweep/results/*/README.md")) + ["llm42.h"]
    bad = 0
    print("sentences  median words  % short  page")
    for path in files:
        for name, paragraphs in parts(path):
            found = sorted((s for p in paragraphs for s in sentences(p)), key=lambda s: s[0])
            counts = [count for count, _ in found]
            if not counts:
                continue
            median = statistics.median(counts)
            short = 100 * sum(count <= SHORT for count in counts) / len(counts)
            fails = median < LEAST_MEDIAN or short > MOST_SHORT
            bad += fails
            mark = "  <- chopped" if fails and "--check" in options else ""
            print(f"{len(counts):9}  {median:12g}  {short:7.1f}  {name}{mark}")
            if "--list" in options:
                print("\n".join(f"{count:4}  {text}" for count, text in found))
    return "--check" in options and bad > 0


if __name__ == "__main__":
    sys.exit(main())
