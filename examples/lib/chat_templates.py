#!/usr/bin/env python3
"""Makes the table of chat templates, examples/lib/chat_templates.h, of a folder of templates.

    python3 examples/lib/chat_templates.py FOLDER --write         makes the table, and tests/chat/golden.json
    python3 examples/lib/chat_templates.py FOLDER --check build   compares build/tests/test_chat with jinja2

FOLDER has templates as files MODEL.jinja, in folders if wanted; their texts are their makers' and are not in this
repository. A template is a program, and C has strings instead: what stands before a system's words, between these and
the user's, and so on. So each template is rendered for conversations, by jinja2 as transformers does it, from which the
strings are read off. It gets a row only if these strings, with the few rules of chat_format, spell all of about a
thousand conversations as jinja2 does: short and long ones, with and without a system, with blanks of every kind at the
ends of texts, empty texts, and every text that stands in the template itself. Where a template does something of its
own with a word, that word becomes one that C refuses. With neither option the script prints what it found. It needs
jinja2, and clang-format 14 for --write.
"""
import argparse
import ast
import collections
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
import llm42_chat  # noqa: E402

BOS, EOS, DATE = "\1", "\2", "\3"
TABLE = "examples/lib/chat_templates.h"
# Names of formats, by a model that has each; the others are called as their first model.
NAMES = {"llama3": "Meta-Llama-3-8B-Instruct", "llama3.1": "Llama-3.1-8B-Instruct", "llama3.2": "Llama-3.2-3B-Instruct",
         "llama2": "Llama-2-13b-chat", "chatml": "Yi-34B-Chat", "chatml-bos": "Hermes-3-Llama-3.1-8B",
         "qwen2": "Qwen2-7B-Instruct", "qwen2.5": "Qwen2.5-7B-Instruct", "qwen3": "Qwen3-0.6B",
         "qwen3-thinking": "Qwen3-Thinking-2507", "mistral-0.1": "Mistral-7B-Instruct-v0.1",
         "mistral-0.2": "Mixtral-8x7B-Instruct-v0.1", "mistral-0.3": "Mistral-Large-Instruct-2407",
         "mistral-nemo": "Mistral-Nemo-Instruct-2407", "zephyr": "TinyLlama-1.1B-Chat-v1.0",
         "phi3": "Phi-3-mini-4k-instruct",
         "phi3.5": "Phi-3.5-mini-instruct", "phi4": "phi-4", "granite3": "granite-3.3-2b-instruct",
         "smollm2": "SmolLM2-135M-Instruct", "smollm3": "SmolLM3 (mistral.rs)", "seed-oss": "Seed-OSS-36B-Instruct",
         "deepseek-r1": "DeepSeek-R1-Distill-Qwen-32B", "text": "tiny42"}
# Formats whose markers some models with them learned as plain text, or whose models' tokenizers were not looked at.
PLAIN = {"llama2", "mistral-0.1", "mistral-0.2", "mistral-7b-instruct-v0.2", "zephyr", "tulu-3", "axolotl-metharme",
         "smaug-34b-v0.1", "h2o-danube-1.8b-chat", "apriel-1.5", "yandexgpt-5-lite-8b-instruct"}
ODD = ["  two blanks  ", "\n\nnewlines\n\n", "\t\v\f tabs \f\v\t", "\u3000wide\u3000", "\u00a0hard\u00a0",
       "\u0085next\u0085",
       "\x1cfile\x1f", "\u2003em\u200a", "\u2028line\u2029", "\u1680ogham\u205f", "\u202fnarrow\u202f",
       "\u200bzero\u200b", "\ufeffmark\ufeff",
       "", " ", "\n", "\u3000", "line\r\nend\r\n", "{{ bos_token }}{% if %}{# #}", "'\"\\n\\", "日本語 é 🛶",
       "<think>\nthought\n</think>\n\nanswer\n", "a</think>b</think> c ", "</think>", "<think>no end",
       "</think>\n\n \nx",
       "<tool_response>x</tool_response>", "<|im_end|>\n", "[/INST]", "</s>", "<|eot_id|>"]
Format = collections.namedtuple("Format", "alone system then reply next answer trim together blank empty late cut "
                                "words where date form")
ROLES = ["system", "user", "assistant"]
BEGIN, END = 1, 2  # of a text, where white space goes


def strip(text, how):
    text = text.lstrip() if how & BEGIN else text
    return text.rstrip() if how & END else text


def spell(f, turns):
    """What C makes of turns, (role, text); None: it refuses them."""
    system, turns = (turns[0][1], turns[1:]) if turns[0][0] == "system" else (None, turns)
    said = turns if system is None else [("system", system)] + turns
    if any(f.where >> ROLES.index(role) & 1 and w in text for w in f.words for role, text in said):
        return None
    if any(f.blank >> ROLES.index(role) & 1 and not text.strip() for role, text in said):
        return None
    if system is not None and (not system if f.empty == 1 else f.empty == 2 and not system.strip()):
        system = None
    if (system is not None and f.system is None) or (len(turns) > 1 and f.reply is None):
        return None
    together = f.together and system is not None
    said = strip(system or "", f.trim[0])
    early = system is not None and not f.late
    out = f.system + said + f.then if early else f.alone
    for i, (role, text) in enumerate(turns):
        if role == "user":
            if system is not None and f.late and i == len(turns) - 1:
                out += said + f.then
            out += strip(text, f.trim[1] & ~BEGIN if together and i == 0 else f.trim[1])
            out += f.reply if i < len(turns) - 1 else f.answer
        else:
            thought = "</think>" in text
            text = text.split("</think>")[-1] if f.cut & 1 else text
            text = text.lstrip("\n") if f.cut & 4 or (f.cut & 2 and thought) else text
            out += strip(text, f.trim[2]) + f.next
    return out


BLANKS = " \t\n\v\f"  # those of white space that are plain enough to look at
CLOSES = {"(": ")", "[": "]", "{": "}"}


def tag_end(text, at):
    """The end of the tag that begins at `at`; None: it has none that chat.c would find, too."""
    end, open_ones = {"{": "}}", "%": "%}", "#": "#}"}[text[at + 1]], []
    at += 2
    while at < len(text):
        if not open_ones and text.startswith(end, at):
            return at + 2
        if end != "#}" and text[at] in "'\"":
            quote = text[at]
            at += 1
            while at < len(text) and text[at] != quote:
                at += 2 if text[at] == "\\" else 1
        elif end != "#}" and text[at] in CLOSES:
            open_ones.append(CLOSES[text[at]])
        elif end != "#}" and text[at] in ")]}":
            if not open_ones or open_ones.pop() != text[at]:
                return None
        at += 1
    return None


def normal(text):
    """A template without what jinja2 drops whatever is said; chat.h says what that is."""
    text = re.sub(r"\r\n|\r", "\n", text)
    text = text[:-1] if text.endswith("\n") else text
    out, at = "", 0
    while at < len(text):
        if text[at] != "{" or text[at + 1:at + 2] not in ("{", "%", "#") or at + 1 == len(text):
            out += text[at]
            at += 1
            continue
        end = tag_end(text, at)
        if end is None or re.match(r"\{%[-+]?[ \n]*raw\b", text[at:]):
            return text  # what is not understood stays as it is
        if text[at + 2] == "-":
            out = out.rstrip(BLANKS)
            if out.endswith("{"):  # "{" and "{%-" would become another tag
                return text
        out += text[at:end]
        if text[end - 3] == "-" and end - at > 4:
            while end < len(text) and text[end] in BLANKS:
                end += 1
        at = end
    return out


class Template:
    def __init__(self, path):
        with open(path, encoding="utf-8", newline="") as file:
            self.text = file.read()
        self.digest = hashlib.sha256(normal(self.text).encode()).hexdigest()
        self.forms = set()
        self.variables = {"bos_token": BOS, "eos_token": EOS, "strftime_now": self._now}

    def _now(self, form):
        self.forms.add(form)
        return DATE

    def render(self, turns, **variables):
        try:
            return llm42_chat.render(self.text, [{"role": r, "content": t} for r, t in turns], None,
                                     {**self.variables, **variables})
        except llm42_chat.Refused:
            return None

    def literals(self):
        """The texts that stand in the template and might mean something when somebody says them."""
        found = re.findall(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"", self.text)
        texts = set()
        for one in found:
            try:
                texts.add(ast.literal_eval(one))
            except (SyntaxError, ValueError):
                pass
        return sorted(t for t in texts if t.strip() and len(t) < 60)


def split(text, *parts):
    """The pieces of a text between parts that stand in it once, in this order; None: they do not."""
    pieces = []
    for part in parts:
        if text is None or text.count(part) != 1:
            return None
        before, text = text.split(part)
        pieces.append(before)
    return pieces + [text]


def read_off(t):
    """The strings of a template, with which options are then tried; or a reason why there are none."""
    if t.render([("user", "U1")], date_string=DATE) != t.render([("user", "U1")]):
        t.variables["date_string"] = DATE
    one = split(t.render([("user", "U1")]), "U1")
    two = split(t.render([("user", "U1"), ("assistant", "A1"), ("user", "U2")]), "U1", "A1", "U2")
    system = split(t.render([("system", "S1"), ("user", "U1")]), "S1", "U1")
    late = split(t.render([("system", "S1"), ("user", "U1"), ("assistant", "A1"), ("user", "U2")]),
                 "U1", "A1", "S1", "U2")
    if not one:
        return None, "a single turn of the user is not spelled"
    if two and (two[0], two[3]) != (one[0], one[1]):
        return None, "the first or the last turn depends on the others"
    date = form = None
    if any(DATE in piece for piece in one + (system or [])):
        form = (t.forms or {None}).pop()
        plain = dict(t.variables, strftime_now=llm42_chat.compiled(t.text).environment.undefined(name="strftime_now"))
        plain.pop("date_string", None)
        try:
            said = llm42_chat.render(t.text, [{"role": "user", "content": "U1"}], None, plain)
        except llm42_chat.Refused:
            said = None
        pattern = re.escape(one[0] + "U1" + one[1]).replace(re.escape(DATE), "(.*)", 1).replace(re.escape(DATE), r"\1")
        found = re.fullmatch(pattern, said, re.S) if said else None
        date = found[1] if found else None
    reply, after = (two[1], two[2]) if two else (None, None)
    if late and two and system and system[0] == one[0]:
        return Format(one[0], one[0], system[1], reply, after, one[1], (0, 0, 0), 0, 0, 0, 1, 0, (), 7, date,
                      form), None
    before, then = (system[0], system[1]) if system else (None, None)
    return Format(one[0], before, then, reply, after, one[1], (0, 0, 0), 0, 0, 0, 0, 0, (), 7, date, form), None


def conversations(odd, pairs):
    """Lists of turns: plain ones of several shapes, each odd text in each place, and two of `pairs` in two places."""
    shapes = ["U", "SU", "UAU", "SUAU", "UAUAU", "SUAUAU"]
    roles = {"S": "system", "U": "user", "A": "assistant"}
    for shape in shapes:
        plain = [(roles[c], f"{c}{i} said.") for i, c in enumerate(shape)]
        yield plain
        for text in odd if shape != "UAUAU" else odd[:len(ODD)]:
            for at in range(len(shape)):
                yield plain[:at] + [(plain[at][0], text)] + plain[at + 1:]
        for text in ODD:
            yield [(role, text) for role, _ in plain]
        for one, two in itertools.product(pairs, pairs) if shape in ("UAU", "UAUAU") else ():
            for at, to in itertools.combinations(range(len(shape)), 2):
                yield [(role, one if i == at else two if i == to else text) for i, (role, text) in enumerate(plain)]


def having(word, chats):
    return sum(any(word in text for _, text in turns) for turns in chats)


def best_of(formats, want):
    return min(formats, key=lambda f: sum(spell(f, turns) != text for turns, text in want))


def choose(f, want, said):
    """The rules that fit best: what is trimmed first, by conversations without words of the template; then the cut."""
    plain = [(turns, text) for turns, text in want if not any(x in y for x in said for _, y in turns)]
    for role in (0, 1, 2):
        trims = [f.trim[:role] + (how,) + f.trim[role + 1:] for how in range(4)]
        f = best_of([f._replace(trim=trim, together=t, empty=e) for trim in trims for t in (0, 1)
                     for e in (0, 1, 2)], plain)
    return best_of([f._replace(cut=cut) for cut in (0, 1, 3, 4, 5)], want)


def fit(t):
    """The Format of a template and None, or None and a reason."""
    f, why = read_off(t)
    if not f:
        return None, why
    said = t.literals()
    marks = [x for x in said if re.search(r"[<>\[\]/|#]", x)][:40]
    odd = ODD + said + [x + "y" for x in said] + ["y" + x for x in said] + ["y " + x + " y" for x in marks] + \
        [x + "y" + z for x in marks[:14] for z in marks[:14]]
    closed = [x + "y" + z for x in marks for z in marks if x.strip().replace("<", "</") == z.strip()]
    pairs = (["<think>\nr\n</think>\n\nx", ""] + closed + [x + "y" for x in marks])[:12]
    want = [(turns, t.render(turns)) for turns in conversations(odd, pairs)]
    best = choose(f, want, said)
    right = [turns for turns, text in want if spell(best, turns) == text]
    wrong = [turns for turns, text in want if spell(best, turns) not in (text, None)]
    for i, role in ((1, "user"), (2, "assistant"), (0, "system")):
        if any(not text.strip() for turns in wrong for who, text in turns if who == role):
            fewer = best._replace(blank=best.blank | 1 << i)
            left = [turns for turns in wrong if spell(fewer, turns) is not None]
            if len(left) < len(wrong):
                best, wrong = fewer, left
    words = []
    while wrong and len(words) < 6:  # a word of the template that stands in many that differ, and in few of the others
        inside = [x for x in marks + ["</think>"] if any(x in y for _, y in wrong[0]) and len(x.strip()) > 2]
        if not inside:
            break
        words.append(max(inside, key=lambda x: (having(x, wrong), -having(x, right), -len(x))).strip())
        best = best._replace(words=tuple(words))
        wrong = [turns for turns, text in want if spell(best, turns) not in (text, None)]
    for i in range(3):  # it is refused where it matters alone
        fewer = best._replace(where=best.where & ~(1 << i))
        if words and not wrong and all(spell(fewer, turns) in (text, None) for turns, text in want):
            best = fewer
    if max(len(x or "") for x in (best.alone, best.system, best.then)) > 4000:
        return None, "a string of more than 4,000 bytes"
    if wrong:
        turns = wrong[0]
        return None, f"differs for {turns!r}: template {t.render(turns)!r}, strings {spell(best, turns)!r}"
    refused = sum(spell(best, turns) is None for turns, _ in want)
    return best, f"{len(want)} conversations, {refused} refused" + (f", words {best.words}" if best.words else "") + \
        (f", blank {best.blank}" if best.blank else "")


def c_string(text):
    if text is None:
        return None
    names = {BOS: "CHAT_BOS", EOS: "CHAT_EOS", DATE: "CHAT_DATE"}
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"})
    parts = [names.get(p) or '"%s"' % p.translate(escapes) for p in re.split(f"([{BOS}{EOS}{DATE}])", text) if p]
    return " ".join(parts) or '""'


def c_format(name, f):
    fields = [("name", c_string(name))] + [(k, c_string(getattr(f, k)))
                                           for k in ("alone", "system", "then", "reply", "next", "answer", "date",
                                                     "form")]
    fields += [("trim", "{%d, %d, %d}" % f.trim if any(f.trim) else None)]
    fields += [(k, getattr(f, k) or None) for k in ("together", "blank")]
    fields += [("plain", 1 if name in PLAIN else None)]
    fields += [(k, getattr(f, k) or None) for k in ("empty", "late", "cut")]
    fields += [("where", f.where if f.words else None)]
    fields += [("words", "{%s}" % ", ".join(map(c_string, f.words)) if f.words else None)]
    return "{" + ",\n".join(f".{k} = {v}" for k, v in fields if v is not None) + "},\n"


SHOWN = {"bos_token": "<BOS>", "eos_token": "<EOS>"}


def shown(t, turns):
    """What jinja2 makes of turns, with tokens and a date that one can see."""
    date = {"strftime_now": lambda form: "<DATE>"}
    return t.render(turns, **SHOWN, **date, **({"date_string": "<DATE>"} if "date_string" in t.variables else {}))


def check(build, t, f, folder):
    """The numbers of conversations that C spells as jinja2 does, that it refuses, and that it spells otherwise."""
    path = os.path.join(folder, "dated" if any(DATE in (x or "") for x in (f.alone, f.system)) else "plain")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(t.text)
    with open(os.path.join(path, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(SHOWN, file)
    chats = list(conversations(ODD + t.literals(), ["<think>\nr\n</think>\n\nx", "<tool_response>y</tool_response>",
                                                    " "]))
    lines = "".join(json.dumps(turns) + "\n" for turns in chats)
    said = subprocess.run([f"{build}/tests/test_chat", "--spell", path], input=lines, capture_output=True, text=True,
                          check=False)
    counts = [0, 0, 0]
    for turns, line in itertools.zip_longest(chats, said.stdout.splitlines()):
        text = json.loads(line)
        text = text if text is None else text.encode("latin-1").decode()
        counts[1 if text is None else 0 if text == shown(t, turns) else 2] += 1
    return counts


def write(formats, rows):
    """The table: formats with names of NAMES first, and a row for each template."""
    named, short = {}, lambda model: re.split("[ ~]", model)[0]  # without a word about where the text is from
    for name, model in list(NAMES.items()) + [(short(m).lower(), m) for m in formats.values()]:
        f = next((f for f, models, _ in rows.values() if model in models), None)
        while name in named.values():
            name = re.sub(r"(-v(\d+))?$", lambda v: f"-v{int(v[2] or 1) + 1}", name, count=1)
        if f and f not in named:
            named[f] = name
    order = list(named)
    lines = [f"    {{\"{digest}\", {order.index(f)}}},  // {', '.join(sorted(set(map(short, models))))}\n"
             for digest, (f, models, _) in sorted(rows.items(), key=lambda row: (order.index(row[1][0]), row[0]))]
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write("// chat_templates.h: the formats of chats and the templates that have them, made by "
                   "chat_templates.py. chat.h says what\n// the fields mean. A model behind a digest is one whose "
                   "template was compared.\n#ifndef CHAT_TEMPLATES_H\n#define CHAT_TEMPLATES_H\n\n"
                   "#include \"examples/lib/chat.h\"\n\nstatic const chat_format chat_format_list[] = {\n")
        file.writelines(c_format(named[f], f) for f in order)
        file.write("};\nenum { CHAT_NAMED = %d };  // the first ones are many models', and have names of their own\n\n"
                   "// clang-format off\nstatic const struct {\n    char sha256[65];\n    int format;\n"
                   "} chat_template_list[] = {\n" % sum(named[f] in NAMES for f in order))
        file.writelines(line if len(line) < 120 else line[:116] + "...\n" for line in lines)
        file.write("};\n// clang-format on\n\n#endif  // CHAT_TEMPLATES_H\n")
    subprocess.run(["clang-format", "-i", TABLE], check=True)
    golden = {}
    for f, (t, _) in {f: (rows[digest][2], digest) for digest, (f, _, _) in sorted(rows.items(), reverse=True)}.items():
        chats = [[("user", " hi\u3000")], [("system", "\u00a0Be nice. "), ("user", "\n1 \n")],
                 [("user", "a"), ("assistant", "<think>\nr\n</think>\n\n b "), ("user", "\x85c\x1c")],
                 [("system", ""), ("user", ""), ("assistant", " d\u2003"), ("user", "e"), ("assistant", "\nf\n"),
                  ("user", "g")]]
        golden[named[f]] = [[turns, shown(t, turns) if spell(f, turns) is not None else None] for turns in chats]
    with open("tests/chat/golden.json", "w", encoding="utf-8") as file:
        lines = [json.dumps(name) + ": " + json.dumps(golden[name]) for name in sorted(golden)]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description="Makes " + TABLE)
    parser.add_argument("folder")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", metavar="BUILD")
    parser.add_argument("-v", action="store_true", help="reasons in full")
    asked = parser.parse_args()
    formats, rows, refused, wrong = {}, {}, 0, 0
    paths = sorted(os.path.join(at, name) for at, _, names in os.walk(asked.folder) for name in names
                   if name.endswith(".jinja"))
    for path in paths:
        model = os.path.basename(path)[:-6]
        try:
            t = Template(path)
            if t.digest in rows:
                rows[t.digest][1].append(model)
                continue
            f, why = fit(t)
        except Exception as error:  # not a template, say: whatever it is, it gets no row
            f, why = None, f"{type(error).__name__}: {error}"
        print(f"{'row' if f else 'no '} {model}: {why if f or asked.v else why[:150]}", flush=True)
        refused += not f
        if f:
            rows[t.digest] = f, [model], t
            formats.setdefault(f, model)
    with tempfile.TemporaryDirectory() as folder:
        for f, models, t in rows.values() if asked.check else ():
            counts = check(asked.check, t, f, folder)
            wrong += counts[2] > 0 or counts[0] == 0
            print(f"C {models[0]}: {counts[0]} alike, {counts[1]} refused, {counts[2]} differ", flush=True)
    if asked.write:
        write(formats, rows)
    print(f"{len(rows)} templates of {len(formats)} formats; {refused} without a row")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
