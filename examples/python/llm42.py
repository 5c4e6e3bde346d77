"""llm42 from Python: deterministic LLM inference by decode, verify, roll back.

    import llm42
    engine = llm42.Engine("examples/tiny42", preset="best")
    for answer in engine.generate(["It was", "Once"], deterministic=True):
        print(answer.text)

README.md beside this file describes it. It needs numpy and build/libllm42_python.so (`make shared`). The structs and
enums are made of the declarations of llm42.h, which that library carries as text, so that they always fit it.
"""
import collections
import contextlib
import ctypes
import enum
import functools
import itertools
import numbers
import operator
import os
import re
import shutil
from struct import Struct
import subprocess
import tempfile
import threading
import weakref

import numpy as np

__version__ = "0.3.0-dev"
__all__ = ["Audit", "Engine", "Error", "Event", "Interrupted", "Model", "Request", "Score", "Scorer", "Transcript",
           "audit", "find", "sweep"]

# The folder that holds examples/ and sweep/: the repository, or PREFIX/share/llm42.
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARY = "libllm42_python.so"


# Declarations ---------------------------------------------------------------------------------------------------------
# A reader of as much C as llm42.h's declarations have: enums, structs without nested ones, functions and their types.

BASE = {"void": None, "bool": ctypes.c_bool, "_Bool": ctypes.c_bool, "char": ctypes.c_char, "int": ctypes.c_int,
        "unsigned": ctypes.c_uint, "float": ctypes.c_float, "double": ctypes.c_double, "size_t": ctypes.c_size_t,
        "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
        "uint8_t": ctypes.c_uint8, "uint16_t": ctypes.c_uint16}


class Declarations:
    """What a text of C declares. The attributes are dicts by name."""

    def __init__(self, text):
        self.enums = {}      # IntEnum classes
        self.constants = {}  # enumerators
        self.structs = {}    # ctypes.Structure classes, complete or not
        self.fields = {}     # of a struct: {field: name of its type}, where it has an enum's or a struct's
        self.calls = {}      # CFUNCTYPE classes of function types
        self.functions = {}  # (result, [arguments]) of functions, as ctypes
        text = re.sub(r"\s+", " ", re.sub(r"\b(const|extern|inline)\b", " ", text)).replace("unsigned char", "uint8_t")
        for name in re.findall(r"\bstruct (\w+)", text):
            self.structs.setdefault(name, type(name, (ctypes.Structure,), {}))
        pattern = re.compile(r"(?:typedef )?enum ?(?P<enum>\w*) ?{(?P<values>[^}]*)} ?\w* ?;"
                             r"|(?:typedef )?struct (?P<struct>\w+) ?{(?P<fields>[^}]*)} ?\w* ?;"
                             r"|typedef struct \w+ \w+ ?;"
                             r"|(?P<typedef>typedef )?(?P<result>\w[\w ]*?[ *]+)(?P<name>\w+) ?"
                             r"\((?P<arguments>[^;]*)\) ?;")
        for match in pattern.finditer(text):
            if match["values"]:
                self._enum(match["enum"], match["values"])
            elif match["struct"]:
                self._struct(match["struct"], match["fields"])
            elif match["name"]:
                result = self._one(match["result"] + "result")[1]
                arguments = [] if match["arguments"].strip() == "void" else match["arguments"].split(",")
                types = [self._one(a)[1] for a in arguments if a.strip() != "..."]
                if match["typedef"]:
                    self.calls[match["name"]] = ctypes.CFUNCTYPE(result, *types)
                else:
                    self.functions[match["name"]] = result, types

    def _enum(self, name, values):
        members, value = {}, 0
        for item in values.split(","):
            if item.strip():
                key, _, given = (part.strip() for part in item.partition("="))
                value = int(given, 0) if given else value
                members[key] = value
                value += 1
        self.constants.update(members)
        if name:
            self.enums[name] = enum.IntEnum(name, members)

    def _type(self, name):
        if name in BASE:
            return BASE[name]
        if name in self.enums:
            return ctypes.c_int
        if name in self.structs:
            return self.structs[name]
        if name in self.calls:
            return self.calls[name]
        raise ImportError(f"llm42: the library's declarations name an unknown type {name}")

    def _one(self, text, base=None):
        """The name, ctype and base type's name of a declarator; `base` is that of the one before it."""
        match = re.fullmatch(r"(?P<base>(?:struct )?\w+ |)(?P<stars>[* ]*)(?P<name>\w+) ?(?P<dims>(?:\[\w*\])*)",
                             text.strip())
        if not match:
            raise ImportError(f"llm42: the library's declarations have a line that cannot be read: {text}")
        base = match["base"].replace("struct ", "").strip() or base
        kind, stars = self._type(base), match["stars"].count("*")
        if base in self.calls and stars:
            stars -= 1  # a CFUNCTYPE is a pointer already
        if stars and base == "char":
            kind, stars = ctypes.c_char_p, stars - 1
        elif stars and base == "void":
            kind, stars = ctypes.c_void_p, stars - 1
        for _ in range(stars):
            kind = ctypes.POINTER(kind)
        for size in reversed(re.findall(r"\[(\w+)\]", match["dims"])):
            kind = kind * (int(size) if size.isdigit() else self.constants[size])
        return match["name"], kind, base

    def _struct(self, name, text):
        fields, names = [], {}
        for line in text.split(";"):
            call = re.fullmatch(r" ?([\w ]+?[ *]+)\( ?\* ?(\w+) ?\) ?\((.*)\) ?", line)
            if call:
                result, types = self._one(call[1] + "result")[1], [self._one(a)[1] for a in call[3].split(",")]
                fields.append((call[2], ctypes.CFUNCTYPE(result, *types)))
                continue
            base = None
            for declarator in line.split(",") if line.strip() else []:
                field, kind, base = self._one(declarator, base)
                fields.append((field, kind))
                if base in self.enums or base in self.structs:
                    names[field] = base
        self.structs[name]._fields_ = fields
        self.fields[name] = names


@functools.lru_cache(maxsize=None)
def _words(name):
    """{word: value} of an enum: LLM42_DTYPE_BF16 is bf16."""
    members = {k: v for k, v in C.enums[name].__members__.items()
               if not k.startswith("LLM42__") and not k.endswith("_COUNT")}
    prefix = os.path.commonprefix(list(members))
    return {k[prefix.rfind("_") + 1:].lower(): int(v) for k, v in members.items()}


def _enum_value(name, field, value):
    if not isinstance(value, str):
        number = operator.index(value)
        if not -2**31 <= number < 2**31:
            raise ValueError(f"{field}: {value}: does not fit the field")
        return number
    words = _words(name)
    if value in words:
        return words[value]
    raise ValueError(f"{field}: '{value}': must be one of {', '.join(words)}")


@functools.lru_cache(maxsize=None)
def _by_value(name):
    return {v: k for k, v in _words(name).items()}


def _enum_word(name, value):
    return _by_value(name).get(value, value)


# The library ----------------------------------------------------------------------------------------------------------

def _load():
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.environ.get("LLM42_LIBRARY"), os.path.join(here, LIBRARY), os.path.join(ROOT, "build", LIBRARY),
              os.path.join(ROOT, "..", "..", "lib", "llm42", LIBRARY)]
    places = [places[0]] if places[0] else places[1:]
    for place in places:
        if not os.path.exists(place):
            continue
        place = os.path.abspath(place)
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            raise ImportError(f"llm42: {place}: cannot be loaded: {error}: "
                              f"LLM42_LIBRARY must name a {LIBRARY}") from None
        if not hasattr(library, "llm42_py_version"):
            raise ImportError(f"llm42: {place}: no llm42_py_version in it, so it is another library: "
                              f"LLM42_LIBRARY must name a {LIBRARY}")
        return place, library
    raise ImportError(f"llm42: no {LIBRARY} at {', '.join(map(os.path.normpath, places))}: "
                      "run `make shared`, or set LLM42_LIBRARY to its path")


library_path, lib = _load()
lib.llm42_py_version.restype = ctypes.c_char_p
lib.llm42_py_declarations.restype = ctypes.POINTER(ctypes.c_char_p)
if lib.llm42_py_version().decode() != __version__:
    raise ImportError(f"llm42: {library_path} has version {lib.llm42_py_version().decode()}, and llm42.py has "
                      f"{__version__}: take both from one version")


def _declarations():
    lines, text = lib.llm42_py_declarations(), []
    while lines[len(text)] is not None:
        text.append(lines[len(text)].decode())
    return Declarations("\n".join(text))


C = _declarations()
for _name, (_result, _arguments) in C.functions.items():
    if hasattr(lib, _name) and _name not in ("llm42_py_version", "llm42_py_declarations"):
        getattr(lib, _name).restype, getattr(lib, _name).argtypes = _result, _arguments
lib.llm42_py_decode.restype = ctypes.c_void_p  # bytes with a size, which may hold a 0, and which llm42_py_free frees

S = C.structs  # by their names in C
INT32 = ctypes.POINTER(ctypes.c_int32)


def _format(kind):
    """A struct of C in the letters of the module struct."""
    return "".join(_format(k) if issubclass(k, ctypes.Structure) else k._type_ for _, k in kind._fields_)


_EVENT = Struct("@" + _format(S["llm42_py_event"]) + "0q")
assert _EVENT.size == ctypes.sizeof(S["llm42_py_event"])
_EVENT_TYPES = _words("llm42_event_type")


class Error(RuntimeError):
    """What the library refuses or cannot do. str() is its message, .result its name, as LLM42_INVALID."""

    def __init__(self, text, result="LLM42_INVALID"):
        super().__init__(text)
        self.result = result


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended generate(). .answers are its requests: those not finished are cancelled and have what they had."""

    def __init__(self, answers):
        finished = sum(a.finish != "cancelled" for a in answers)
        super().__init__(f"{finished} of {len(answers)} answers were finished: see .answers")
        self.answers = answers


def _check(result, error):
    if result < 0:
        name = lib.llm42_result_name(result).decode()
        text = error.text.decode(errors="replace") or lib.llm42_result_text(result).decode()
        raise (MemoryError(text) if name == "LLM42_MEMORY" else Error(text, name))
    return result


def _name(path, what, empty=True):
    """A file's name, which C would cut off at a NUL. `empty`: what gets it says itself what an empty one lacks."""
    path = os.fspath(path)
    if ("\0" if isinstance(path, str) else b"\0") in path:
        raise ValueError(f"{what}: {path!r}: embedded null byte")
    if not path and not empty:
        raise ValueError(f"{what}: '': must be the name of a file")
    return path


def find(path):
    """A file or folder that came with llm42, as examples/tiny42: the path itself if it is there."""
    path = _name(path, "path")
    other = os.path.join(ROOT, path)
    return other if path and not os.path.exists(path) and os.path.exists(other) else path


class _Memory:
    """A pointer of the library's and the function that frees it, once nothing refers to this object."""

    def __init__(self, pointer, free, *keep):
        self.pointer, self._free, self._keep = pointer, free, keep

    def __del__(self):
        if self.pointer:
            self._free(self.pointer)
            self.pointer = None


class _Buffer:
    """What numpy makes an array of. It keeps the owner of the memory alive for as long as the array lives."""

    def __init__(self, address, shape, kind, owner, writable=False):
        self.__array_interface__ = {"data": (address, not writable), "shape": shape, "typestr": kind, "version": 3}
        self.owner = owner


def _view(pointer, count, kind, owner):
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    return np.asarray(_Buffer(address, (count,), kind, owner)) if address and count > 0 else np.empty(0, kind)


def _ids(ids, what, kind="a sequence of token ids"):
    """Token ids as an int32 array. Each must be a whole number that an int32 holds."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        given = "something else in a list" if isinstance(ids, (list, tuple)) else type(ids).__name__
        raise TypeError(f"{what}: must be {kind}, not {given}")
    if array.size and not (0 <= array.min() and array.max() < 1 << 31):
        raise ValueError(f"{what}: token ids are from 0 to {(1 << 31) - 1}")
    return np.ascontiguousarray(array, np.int32)


def _set(struct, name, value, keep):
    """Sets a field from a Python value: words for enums, dicts for structs."""
    kind = C.fields[type(struct).__name__].get(name)
    if kind in C.enums:
        value = _enum_value(kind, name, value)
    elif kind in S and isinstance(value, dict):
        for key, item in value.items():
            if key not in dict(S[kind]._fields_):
                raise TypeError(f"{name}: no field '{key}': there are {', '.join(dict(S[kind]._fields_))}")
            _set(getattr(struct, name), key, item, keep)
        return
    elif isinstance(value, (str, os.PathLike)) and dict(struct._fields_)[name] is ctypes.c_char_p:
        value = _name(value, name).encode()
        keep.append(value)
    if dict(struct._fields_)[name] is ctypes.c_bool and value not in (False, True):
        raise TypeError(f"{name}: {value!r}: must be True or False")
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        value = int(value)  # of numpy's integers, ctypes would cut bits off
    try:
        setattr(struct, name, value)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    got = getattr(struct, name)
    if isinstance(value, int) and got != value:
        raise ValueError(f"{name}: {value}: does not fit the field")
    # 0 and 1 are settings of their own, which a number must not become by rounding.
    if isinstance(value, float) and isinstance(got, float) and got != value and got.is_integer():
        raise ValueError(f"{name}: {value}: would be rounded to {got:g}: write that")


def _take(struct, options, keep, nested=()):
    """Moves what is a field of the struct, or of its structs named by `nested`, from the dict into the struct."""
    for name in list(options):
        places = [struct] + [getattr(struct, n) for n in nested]
        place = next((p for p in places if name in dict(p._fields_)), None)
        if place is not None:
            _set(place, name, options.pop(name), keep)


def _names(*structs, without=()):
    return ", ".join(name for s in structs for name, _ in S[s]._fields_ if name not in without)


def _log(function, keep):
    """A callback that gives lines to a Python function, or NULL."""
    if function is None:
        return C.calls["llm42_log_fn"]()
    call = C.calls["llm42_log_fn"](lambda user, line: function(line.decode(errors="replace")))
    keep.append(call)
    return call


# Models and texts -----------------------------------------------------------------------------------------------------

class _Single:
    """Owns memory of the library, which two copies would release twice."""

    def __reduce__(self):
        raise TypeError(f"{type(self).__name__}: it owns memory of the library and cannot be copied or pickled")


_WEIGHT_TYPES = {"bf16": "<u2", "fp32": "<f4", "e4m3": "|u1"}
# The shapes of a layer's vectors.
_VECTORS = {**dict.fromkeys(("attention_norm", "ffn_norm", "o_bias", "down_bias"), lambda w, c: (c["dim"],)),
            **dict.fromkeys(("q_norm", "k_norm"), lambda w, c: (c["head_dim"],)),
            **{n + "_bias": lambda w, c, n=n: (getattr(w, n).n,) for n in ("q", "k", "v", "gate", "up", "alpha")},
            "decay": lambda w, c: (w.alpha.n,), "taps": lambda w, c: (w.qkv.n, 4),
            "head_norm": lambda w, c: (c["value_dim"],)}


class Model(_Single):
    """A model: an HF folder, "synthetic:NAME" or "shape:NAME". It may serve any number of engines."""

    def __init__(self, path, tokenizer=None, on_device=False, no_mmap=False, log=None):
        keep, pointer, error = [], ctypes.POINTER(S["llm42_model"])(), S["llm42_error"]()
        self.path, self._tokenizer = find(path), None
        self._tokenizer_path = tokenizer and _name(tokenizer, "tokenizer")
        desc = S["llm42_model_desc"](path=self.path.encode(), on_device=on_device, no_mmap=no_mmap, log=_log(log, keep))
        _check(lib.llm42_model_load(ctypes.byref(pointer), ctypes.byref(desc), ctypes.byref(error)), error)
        self._memory = _Memory(pointer, lib.llm42_model_free, keep)
        self._writable = no_mmap or not pointer.contents.mapped_bytes

    def weights(self):
        """{name: array} of all weights, over the model's own memory. The names are the fields of llm42_model, as
        "layer.0.q". Matrices are [n, k], of bf16 as uint16 or of e4m3 as uint8 with scales, and vectors are fp32. The
        arrays may be written if the model was loaded with no_mmap=True; then reload() its engines and scorers."""
        found, struct = {}, self._memory.pointer.contents
        if not struct.embed.data:
            raise Error(f"{self.name}: its weights are not in this process's memory", "LLM42_UNSUPPORTED")

        def add(name, pointer, kind, *shape):
            if pointer and shape[0]:
                memory = _Buffer(ctypes.cast(pointer, ctypes.c_void_p).value, shape, kind, self._memory, self._writable)
                found[name] = np.asarray(memory)

        def matrix(name, m):
            if not m.data:
                return
            add(name, m.data, _WEIGHT_TYPES[_enum_word("llm42_dtype", m.type)], m.n, m.k)
            blocks = _enum_word("llm42_scaling", m.scaling) == "block"
            add(name + ".scale", m.scale, "<f4", *((-(-m.n // 128), -(-m.k // 128)) if blocks else (m.n,)))

        matrix("embed", struct.embed)
        if struct.head.data != struct.embed.data:
            matrix("head", struct.head)
        add("final_norm", struct.final_norm, "<f4", self.config["dim"])
        for i in range(self.config["layers"]):
            layer, at = struct.layer[i], f"layer.{i}."
            for name, _ in layer._fields_:
                value = getattr(layer, name)
                if isinstance(value, S["llm42_matrix"]):
                    matrix(at + name, value)
                elif name in _VECTORS:
                    add(at + name, value, "<f4", *_VECTORS[name](layer, self.config))
            for e in range(self.config["experts"] + (self.config["shared_ffn"] > 0) if layer.expert else 0):
                for j, name in enumerate(("gate", "up", "down")):
                    matrix(f"{at}expert.{e}.{name}", layer.expert[3 * e + j])
        return found

    @property
    def config(self):
        """Its llm42_config, as a dict."""
        config = self._memory.pointer.contents.config
        values = {name: getattr(config, name) for name, _ in config._fields_}
        return {**values, "arch": _enum_word("llm42_arch", config.arch), "stop": list(config.stop[:config.stop_count])}

    @property
    def name(self):
        return self._memory.pointer.contents.name.decode(errors="replace")

    @property
    def tokenizer(self):
        """The library's own tokenizer. What it does not read goes to the package `tokenizers`, if that is installed."""
        if self._tokenizer is None:
            hf = _hf_tokenizer(self._tokenizer_path or os.path.join(self.path, "tokenizer.json"))
            try:
                self._tokenizer = Tokenizer(self, self._tokenizer_path, hf)
            except Error as error:
                if error.result != "LLM42_UNSUPPORTED" or not hf:
                    raise
                self._tokenizer = hf
        return self._tokenizer

    def encode(self, text):
        """Token ids of a text, with BOS before them if the tokenizer puts one there."""
        return self.tokenizer.encode(text)

    def decode(self, ids, skip_special=True, after=()):
        """The text of ids. after: the ids before them: some tokenizers leave out the space that a text begins with."""
        ids, vocab = np.concatenate([_ids(after, "after"), _ids(ids, "ids")]), self.config["vocab"]
        if ids.size and ids.max() >= vocab:
            raise ValueError(f"ids: token {ids.max()}: the model's vocabulary has {vocab}")
        return self.tokenizer.decode(ids, skip_special, len(after))

    def chat(self, messages, tools=None, **variables):
        """Token ids of a chat, a list of {"role": ..., "content": ...}, up to where the answer begins.

        jinja2 renders the chat template of the model's folder, as transformers does it; `variables` are the template's,
        such as enable_thinking=False or date_string="26 Jul 2024". A template that refuses the messages raises a
        ValueError, and where jinja2 or a template is missing, an Error says what to install."""
        import llm42_chat
        try:
            text = llm42_chat.render_folder(self.path, messages, tools, variables)
        except llm42_chat.Missing as error:
            raise Error(str(error), "LLM42_UNSUPPORTED") from None
        return self.tokenizer.encode(text, False)  # the template has written BOS if it wants one

    def ids(self, prompt, what="prompt"):
        """The ids of a text, or those given."""
        if isinstance(prompt, str):
            return self.encode(prompt)
        return _ids(prompt, what, "a text or a sequence of token ids")

    def score(self, prompt, top=0, **options):
        """Scorer(model, ...).score(prompt, top, ...)"""
        sampling = {name: options.pop(name) for name, _ in S["llm42_sampling"]._fields_ if name in options}
        with Scorer(self, **options) as scorer:
            return scorer.score(prompt, top, **sampling)

    def __repr__(self):
        return f"llm42.Model({self.path!r})"


class Tokenizer:
    """The library's own tokenizer: BPE of HF, also sentencepiece's, and llama2.c vocabularies. Threads may share it."""

    def __init__(self, model, file=None, other=None):
        """other: takes the texts that the library refuses to encode."""
        self._other = other
        pointer, error = ctypes.POINTER(S["llm42_py_tokenizer"])(), S["llm42_error"]()
        _check(lib.llm42_py_tokenizer_open(ctypes.byref(pointer), model._memory.pointer, model.path.encode(),
                                           file and os.fspath(file).encode(), ctypes.byref(error)), error)
        self._memory = _Memory(pointer, lib.llm42_py_tokenizer_close, model._memory)

    def encode(self, text, bos=True):
        try:
            return self._encode(text, bos)
        except Error as error:
            if error.result != "LLM42_UNSUPPORTED" or not self._other:
                raise
        return np.concatenate([self._encode("", bos), self._other.encode(text, False)])

    def _encode(self, text, bos):
        data, ids, count, error = text.encode(), INT32(), ctypes.c_int(), S["llm42_error"]()
        _check(lib.llm42_py_encode(self._memory.pointer, data, len(data), bos, ctypes.byref(ids), ctypes.byref(count),
                                   ctypes.byref(error)), error)
        return _view(ids, count.value, "<i4", _Memory(ids, lib.llm42_py_free)).copy()

    def decode(self, ids, skip_special=True, begin=0):
        size = ctypes.c_size_t()
        text = _Memory(lib.llm42_py_decode(self._memory.pointer, ids.ctypes.data_as(INT32), begin, len(ids),
                                           skip_special, ctypes.byref(size)), lib.llm42_py_free)
        return ctypes.string_at(text.pointer, size.value).decode() if size.value else ""


class _HfTokenizer:
    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def encode(self, text, special=True):
        return np.array(self._tokenizer.encode(text, add_special_tokens=special).ids, np.int32)

    def decode(self, ids, skip_special=True, begin=0):
        return self._tokenizer.decode(ids[begin:].tolist(), skip_special_tokens=skip_special)


def _hf_tokenizer(file):
    try:
        import tokenizers
        return _HfTokenizer(tokenizers.Tokenizer.from_file(os.fspath(file)))
    except Exception:  # no package, no such file, or one that it cannot read: its errors have no class of their own
        return None


# Backends -------------------------------------------------------------------------------------------------------------

_BACKEND_DESC = {"cpu": "llm42_cpu_desc", "cuda": "llm42_cuda_desc", "sim": "llm42_sim_desc"}


def _backend(name):
    if name not in _BACKEND_DESC:
        raise ValueError(f"backend: '{name}': must be one of {', '.join(_BACKEND_DESC)}")
    if not hasattr(lib, f"llm42_backend_{name}"):
        raise Error(f"{library_path} has no CUDA backend: build it by `make shared CUDA=1`", "LLM42_UNSUPPORTED")
    return getattr(lib, f"llm42_backend_{name}")()


def _backend_desc(name, options, keep):
    desc = S[_BACKEND_DESC[name]]()
    if "calibration" in options and name == "sim":
        pointer, error = ctypes.POINTER(S["llm42_calibration"])(), S["llm42_error"]()
        path = find(_name(options.pop("calibration"), "calibration", empty=False))
        _check(lib.llm42_calibration_load(ctypes.byref(pointer), path.encode(), ctypes.byref(error)), error)
        keep.append(_Memory(pointer, lib.llm42_calibration_free))
        desc.calibration = pointer
    _take(desc, options, keep)
    return desc


# Requests -------------------------------------------------------------------------------------------------------------

def _copy(array):
    """A read-only copy."""
    array = array.copy()
    array.flags.writeable = False
    return array


def _own(value):
    """A copy of a struct or an array that belongs to the engine: what is written to it changes nothing there."""
    return type(value).from_buffer_copy(value) if isinstance(value, (ctypes.Structure, ctypes.Array)) else value


def _during_call(pointer):
    """What a planner or drafter was given, unless its call is over."""
    if pointer is None:
        raise Error("this is valid only during the call of the planner or drafter that it was given to: keep copies")
    return pointer


class Info:
    """A request as planners and drafters see it: every field of llm42_request is an attribute. Enums are words, and
    arrays read-only copies. It ends with the call that it was given to, since its memory may be another's then."""

    def __init__(self, struct):
        self._struct = struct

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        value = _own(getattr(_during_call(self._struct), name))
        return _enum_word("llm42_" + name, value) if name in ("state", "finish") else value

    def _array(self, field, count, kind):
        return _copy(_view(getattr(_during_call(self._struct), field), count, kind, None))

    @property
    def prompt(self):
        return self._array("prompt", self.prompt_count, "<i4")

    @property
    def tokens(self):
        """The committed tokens, which never change again if the request is deterministic."""
        return self._array("tokens", self.committed, "<i4")

    @property
    def logprobs(self):
        """Their natural log-probabilities."""
        return self._array("logprobs", self.committed, "<f4")

    @property
    def text_ids(self):
        """Prompt, committed tokens and candidates: what a drafter continues. A copy."""
        return np.concatenate([self.prompt, self._array("tokens", self.committed + self.candidates, "<i4")])


class _RequestMemory:
    """When neither a Request nor a view of its arrays is left, its id goes to a list. The engine releases what is
    there before it runs, because this end may come in any thread, also while the engine runs in another."""

    def __init__(self, engine_memory, id, dead):
        self._engine, self._id, self._dead = engine_memory, id, dead

    def __del__(self):
        self._dead.append(self._id)


class Request(Info):
    """A request of an engine. Until it is released or the engine is closed its arrays are views, and then copies."""

    def __init__(self, model, memory, struct):
        super().__init__(struct)
        self._model, self.id = model, struct.id
        struct.owner, struct.copies = memory, None  # with the struct, since another thread may release the request

    def _array(self, field, count, kind):
        struct = self._struct
        return struct.copies[field] if struct.copies else _view(getattr(struct, field), count, kind, struct.owner)

    @property
    def finished(self):
        return self.finish != "none"

    @property
    def text(self):
        """Text of its tokens, without special ones."""
        return self._model.decode(self.tokens, after=self.prompt)

    def release(self):
        """Copies what there is and gives the memory back, when the request has ended. Views that were taken before keep
        it until they are gone."""
        struct = self._struct
        if struct.copies:
            return
        kept = type(struct).from_buffer_copy(struct)
        kept.owner, kept.copies = None, {name: _copy(getattr(self, name)) for name in ("prompt", "tokens", "logprobs")}
        kept.prompt = kept.tokens = kept.logprobs = None
        self._struct = kept

    def _ended(self, finish):
        """The engine says so. What was released before has no other way to know."""
        if self._struct.copies:
            self._struct.finish, self._struct.state = finish, C.constants["LLM42_STATE_FINISHED"]

    def __repr__(self):
        try:
            said = self.text
        except Error:  # the model has no tokenizer
            said = ", ".join(map(str, self.tokens[:30]))
        return (f"<llm42.Request {self.id}: {self.state}, {self.committed} tokens, finish {self.finish}: "
                f"{said if len(said) <= 80 else said[:79] + '…'!r}>")


class Event(collections.namedtuple("Event", "type request row all_tokens all_logprobs")):
    """An llm42_event. type, finish and schedule are words, and request is a Request (None for a pass). tokens and
    logprobs are arrays of the event's own, None where it has none. There is an event for nearly every token, so it is
    a tuple, made in C, of the words and what they were read from, and the rest is computed when it is asked for."""

    __slots__ = ()

    time = property(lambda self: self.row[1], doc="seconds on the backend's clock")
    begin = property(lambda self: self.row[2])
    n = property(lambda self: self.row[4])
    position = property(lambda self: self.row[5], doc="index of tokens[0] among the request's output tokens")
    finish = property(lambda self: _FINISH_WORDS[self.row[6]])
    schedule = property(lambda self: _SCHEDULE_WORDS.get(self.row[7]))
    shape = property(lambda self: self.row[8])
    windows = property(lambda self: self.row[9])

    @property
    def tokens(self):
        row = self.row
        return self.all_tokens[row[10]:row[10] + row[4]] if row[10] >= 0 else None

    @property
    def logprobs(self):
        row = self.row
        return np.frombuffer(self.all_logprobs, np.float32, row[4], 4 * row[10]) if row[11] else None

    @property
    def replayed(self):
        """Of a rollback: (token, logprob) of the replay pass, in place of tokens[0]."""
        return self.row[12:] if self.type == "rolled_back" else None

    def __repr__(self):
        return f"<llm42.Event {self.type}, request {self.row[0]}, n {self.n}>"


# Planners and drafters ------------------------------------------------------------------------------------------------

class _Raised:
    """What a callback has raised: C cannot pass it on, so the step ends with an error and the door raises it again."""

    def __init__(self):
        self.exception = None

    def guard(self, function, failed):
        def call(*arguments):
            try:
                return function(*arguments)
            except BaseException as exception:  # Ctrl-C, too
                self.exception = self.exception or exception
                return failed
        return call

    def again(self):
        exception, self.exception = self.exception, None
        if exception is not None:
            raise exception


class View:
    """What a planner sees during a call: every field of llm42_view, and the library's functions for planners. Structs
    are copies, `desc` a pointer to one: what is written to them changes nothing in the engine."""

    def __init__(self, pointer):
        self._pointer, self._struct, self._shown = pointer, pointer.contents, []

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(_during_call(self._struct), name)
        return ctypes.pointer(_own(value.contents)) if name == "desc" else _own(value)

    def _info(self, struct):
        self._shown.append(Info(struct))
        return self._shown[-1]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for info in self._shown:
            info._struct = None
        self._pointer = self._struct = None

    @property
    def running(self):
        return [self._info(_during_call(self._struct).running[i].contents) for i in range(self.running_count)]

    @property
    def waiting(self):
        """The waiting requests that have arrived, by arrival."""
        found, pointer = [], _during_call(self._struct).waiting
        while pointer and pointer.contents.arrival <= self._struct.now:
            found.append(self._info(pointer.contents))
            pointer = lib.llm42_next_waiting(self._pointer, pointer)
        return found

    def rows(self, request, kind, schedule):
        """How many rows this choice may have now; 0: none."""
        return lib.llm42_choice_rows(_during_call(self._pointer), ctypes.byref(_during_call(request._struct)),
                                     _enum_value("llm42_kind", "kind", kind),
                                     _enum_value("llm42_schedule", "schedule", schedule))


Choice = collections.namedtuple("Choice", "request kind rows")
Choice.__doc__ = "What a plan holds: the id of a request, a word, and rows, where 0 is as many as it may have."


class Plan:
    """What a planner fills in. windows, prompts and ordinary may be called in any order: each adds only what can run
    beside what the plan holds. It may set `schedule` (a word), `shape`, and a smaller `count`, which drops the last
    choices. `choice`, a list of Choices, and `room` are the engine's."""

    def __init__(self, pointer, view, keep):
        self.__dict__.update(_to=pointer, _view=view, _keep=keep, _asking=False)

    @property
    def _both(self):
        """View and plan, for what changes the plan."""
        if self._asking:
            raise Error("plan: the order of its windows is being asked for: change it before windows() or after it")
        return _during_call(self._view._pointer), self._to

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        _during_call(self._view._pointer)
        plan = self._to.contents
        if name == "choice":
            held = plan.choice[:min(plan.count, plan.room)]
            return [Choice(c.request, _enum_word("llm42_kind", c.kind), c.rows) for c in held]
        value = getattr(plan, name)
        return _enum_word("llm42_schedule", value) if name == "schedule" else value

    def __setattr__(self, name, value):
        plan = self._both[1].contents
        if name in ("choice", "room"):
            raise Error(f"plan.{name}: it is the engine's: add choices by plan.choose(request, kind, rows), and drop "
                        "the last ones by a smaller plan.count")
        if name == "count" and not (isinstance(value, numbers.Integral) and 0 <= value <= plan.count):
            raise Error(f"plan.count: {value}: must be from 0 to {plan.count}, the choices that the plan has: add more "
                        "by plan.choose(request, kind, rows)")
        if name not in dict(plan._fields_):
            raise TypeError(f"plan: no field '{name}': there are schedule, shape and count")
        _set(plan, name, value, self._keep)

    def choose(self, request, kind, rows=0):
        """kind: decode, prompt or window. rows: 0 for as many as it may have."""
        if isinstance(rows, numbers.Integral) and not -(1 << 31) <= rows < 1 << 31:  # ctypes would cut bits off
            raise ValueError(f"rows: {rows}: does not fit the field")
        lib.llm42_choose(self._both[1], ctypes.byref(_during_call(request._struct)),
                         _enum_value("llm42_kind", "kind", kind), rows)

    def default(self):
        """The plan of the built-in planner."""
        error = S["llm42_error"]()
        _check(lib.llm42_planner_default().contents.plan(None, *self._both, ctypes.byref(error)), error)

    def windows(self, order=None):
        """Adds up to G windows in ascending order of order(request); negative: it is left out. Returns their rows."""
        raised = _Raised()
        info = self._view._info
        ask = (lambda view, request: float(order(info(request.contents)))) if order else (lambda view, request: 0.0)
        call = C.calls["llm42_order_fn"](raised.guard(ask, -1.0))
        both = self._both
        self.__dict__["_asking"] = True  # the library has begun to write choices
        try:
            rows = lib.llm42_plan_windows(*both, call)
        finally:
            self.__dict__["_asking"] = False
        raised.again()
        return rows

    def prompts(self):
        """Adds the deterministic prompts that may not run in ordinary passes."""
        lib.llm42_plan_prompts(*self._both)

    def ordinary(self):
        """Adds all requests that decode, and the prompts that may run beside them."""
        lib.llm42_plan_ordinary(*self._both)


def _field_call(struct, field):
    return dict(S[struct]._fields_)[field]


def _planner(planner, raised, keep):
    """planner: a function plan(view, plan), or an object with plan and perhaps preempt, admit and postprocess."""
    plan = planner if callable(planner) else getattr(planner, "plan", None)
    if not callable(plan):
        raise ValueError(f"planner: {planner!r}: must be a function plan(view, plan), or an object with plan")
    failed = C.constants["LLM42_PLAN"]

    def run_plan(user, view, to, error):
        with View(view) as seen:
            plan(seen, Plan(to, seen, keep))
        return 0

    def after(user, view, to, seconds):
        with View(view) as seen:
            planner.postprocess(seen, Plan(to, seen, keep), seconds)

    def chosen(function):
        def call(user, view):
            with View(view) as seen:
                request = function(seen)
                return request if isinstance(request, int) else request.id if request is not None else 0
        return call

    struct = S["llm42_planner"](name=b"python")
    calls = {"plan": raised.guard(run_plan, failed)}
    for name in ("preempt", "admit"):
        if hasattr(planner, name):
            calls[name] = raised.guard(chosen(getattr(planner, name)), 0)
    if hasattr(planner, "postprocess"):
        calls["postprocess"] = raised.guard(after, None)
    for name, call in calls.items():
        setattr(struct, name, _field_call("llm42_planner", name)(call))
    keep.append(struct)
    return struct


def _python_drafter(draft, raised, keep):
    """draft: a function draft(request, limit) that returns token ids; more than the limit are cut off."""
    def run_draft(user, view, drafts, count, error):
        for i in range(count):
            d = drafts[i]
            info = Info(d.request.contents)
            try:
                guesses = draft(info, d.limit)
            finally:
                info._struct = None
            guesses = _ids([] if guesses is None else guesses, "draft")[:d.limit]
            ctypes.memmove(d.token, guesses.ctypes.data, guesses.nbytes)
            d.count = len(guesses)
        return 0

    struct = S["llm42_drafter"](name=b"python")
    struct.draft = _field_call("llm42_drafter", "draft")(raised.guard(run_draft, C.constants["LLM42_BACKEND"]))
    keep.append(struct)
    return struct


def _drafter(drafter, raised, keep):
    """A Python function, the word lookup, or a small Model."""
    if callable(drafter):
        return _python_drafter(drafter, raised, keep)
    struct, error = S["llm42_drafter"](), S["llm42_error"]()
    if isinstance(drafter, Model):
        desc = S["llm42_draft_model_desc"](model=drafter._memory.pointer)
        _check(lib.llm42_draft_model_open(ctypes.byref(struct), ctypes.byref(desc), ctypes.byref(error)), error)
    elif drafter == "lookup":
        desc = S["llm42_lookup_desc"]()
        _check(lib.llm42_lookup_open(ctypes.byref(struct), ctypes.byref(desc), ctypes.byref(error)), error)
    else:
        raise ValueError(f"drafter: {drafter!r}: must be a function draft(request, limit), 'lookup' or a Model")
    keep.append(_Memory(ctypes.pointer(struct), lib.llm42_drafter_close, drafter))
    return struct


# Engines --------------------------------------------------------------------------------------------------------------

_NESTED = ("policy", "numerics", "kv", "experiment")
_SLICE = 0.05  # seconds that a run may stay in C before Python looks at signals


def _engine_free(events, close=lib.llm42_engine_close, free=lib.llm42_py_events_free, byref=ctypes.byref):
    """Names of this module may be gone when the interpreter ends, so the function has what it calls."""
    def both(pointer):
        close(pointer)
        free(byref(events))
    return both


class Engine(_Single):
    """An engine. Options: every field of llm42_engine_desc, of the structs in it, and of the backend's own desc.

    Words stand for enums (preset="best", compute="fp32"). planner: a function plan(view, plan) or an object; drafter:
    a function draft(request, limit), "lookup" or a Model. record: the path of a transcript, complete when the engine
    is closed. log: a function that gets lines. backend="sim" needs calibration=FILE.
    """

    def __init__(self, model, preset="dvr", backend="cpu", planner=None, drafter=None, record=None, log=None,
                 **options):
        record = record if record is None else _name(record, "record", empty=False)
        self.model = model = model if isinstance(model, Model) else Model(model)
        keep, lines, self._raised = [model._memory], [], _Raised()
        desc, error = S["llm42_engine_desc"](model=model._memory.pointer), S["llm42_error"]()
        desc.backend = _backend(backend)
        for name in ("on_event", "event_user", "log_user", "backend_desc", "auto_release"):
            if name in options:
                raise TypeError(f"Engine: {name} is the engine's own: iterate over it for events, and drop a Request "
                                "to release it")
        _take(desc, options, keep, _NESTED)
        backend_desc = _backend_desc(backend, options, keep)
        if options:
            raise TypeError(f"Engine: no option '{next(iter(options))}': there are "
                            f"{_names('llm42_engine_desc', *['llm42_' + n for n in ('policy', 'numerics')])}, "
                            f"{_names('llm42_kv_desc', 'llm42_experiment', _BACKEND_DESC[backend])}")
        desc.preset = _enum_value("llm42_preset", "preset", preset)
        desc.backend_desc = ctypes.addressof(backend_desc)
        if planner is not None:
            desc.planner = ctypes.pointer(_planner(planner, self._raised, keep))
        if drafter is not None:
            desc.drafter = ctypes.pointer(_drafter(drafter, self._raised, keep))

        def hear(line):
            if line.startswith("cuda ") and line not in lines:
                lines.append(line)
            if log:
                log(line)

        desc.log = _log(hear, keep)
        self._events = S["llm42_py_events"](types=_mask(_SHOWN))
        desc.on_event = ctypes.cast(lib.llm42_py_on_event, C.calls["llm42_event_fn"])
        desc.event_user = ctypes.addressof(self._events)
        pointer = ctypes.POINTER(S["llm42_engine"])()
        result = lib.llm42_engine_open(ctypes.byref(pointer), ctypes.byref(desc), ctypes.byref(error))
        self._raised.again()
        _check(result, error)
        self._memory = _Memory(pointer, _engine_free(self._events), keep, desc, backend_desc)
        self._by_ref = ctypes.byref(self._events), ctypes.byref(error)
        self._error, self._pending = error, collections.deque()  # queues of events, one for each _collect
        self._batch = None                             # the queue that _collect makes, and its events of requests' ends
        self._dead, self._early = collections.deque(), set()  # ids to release now, and when their requests have ended
        self._live = {}                                # requests that are not finished, by id
        self._known = weakref.WeakValueDictionary()    # all requests that somebody holds
        self._lock = threading.RLock()                 # of who uses the engine, a planner of the same thread included
        self._inside = False                           # a run is in C: planners and drafters are being called
        self._recorder = None
        if record is not None:
            self._recorder = ctypes.POINTER(S["llm42_recorder"])()
            _check(lib.llm42_recorder_open(ctypes.byref(self._recorder), record.encode(), pointer,
                                           "\n".join(lines).encode(), ctypes.byref(error)), error)
            self._events.recorder = self._recorder

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        if getattr(self, "_recorder", None):
            self.close()

    def _open(self):
        """The engine's memory. Whoever holds it may read the engine, even if another thread closes it."""
        memory = self._memory
        if memory is None:
            raise Error("the engine is closed")
        return memory

    def _pointer(self):
        return self._open().pointer

    @contextlib.contextmanager
    def _alone(self, inside=False):
        """Refuses what another thread asks meanwhile, and, unless `inside`, what a planner or drafter asks."""
        if not self._lock.acquire(blocking=False):
            raise Error("another thread runs this engine: use it from one thread at a time")
        try:
            if self._inside and not inside:
                raise Error("a planner or drafter of this engine is being called: do this when the run has returned")
            if self._batch is not None:
                self._collect(self._events)  # the rest of what Ctrl-C has cut short
            yield
        finally:
            self._lock.release()

    def close(self):
        """Drops live requests and finishes the transcript. Requests keep copies, and views that are left the memory."""
        if self._memory is None:
            return
        with self._alone():
            for request in list(self._known.values()):
                request.release()
            self._live.clear()
            self._pending.clear()
            recorder, self._recorder = self._recorder, None
            self._events.recorder = None
            self._memory = None
            if recorder:
                _check(lib.llm42_recorder_close(recorder, ctypes.byref(self._error)), self._error)

    @property
    def config(self):
        """The resolved llm42_engine_desc, as a dict; words for enums, dicts for structs, no pointers."""
        memory = self._open()
        return _as_dict(lib.llm42_engine_config(memory.pointer).contents)

    @property
    def stats(self):
        """llm42_stats, as a dict; arrays by schedule are dicts."""
        memory = self._open()
        stats = _as_dict(lib.llm42_engine_stats(memory.pointer))
        words = _by_value("llm42_schedule")
        return {k: {words[i]: x for i, x in enumerate(v) if i} if isinstance(v, list) else v for k, v in stats.items()}

    @property
    def arithmetic(self):
        memory = self._open()
        name = lib.llm42_engine_arithmetic(memory.pointer)
        return name and name.decode()

    @property
    def now(self):
        memory = self._open()
        return lib.llm42_engine_now(memory.pointer)

    def reload(self):
        """Takes up weights that were written (see Model.weights). Every request must be finished."""
        with self._alone():
            if self._recorder:
                raise Error("reload: the transcript names the weights that it began with: close this engine, and open "
                            "one with another record")
            _check(lib.llm42_engine_reload(self._pointer(), ctypes.byref(self._error)), self._error)

    def submit(self, prompt, stop=None, **options):
        """Queues a request: a text or token ids, and fields of llm42_request_desc and llm42_sampling."""
        ids, keep, error = self.model.ids(prompt), [], self._error
        desc = S["llm42_request_desc"](prompt=ids.ctypes.data_as(INT32), prompt_count=len(ids))
        if stop is not None:
            stops = _ids(stop, "stop")
            desc.stop, desc.stop_count = stops.ctypes.data_as(INT32), len(stops)
        own = ("prompt_count", "stop_count", "user")
        for name in own:
            if name in options:
                raise TypeError(f"submit: {name} is set by submit itself")
        _take(desc, options, keep, ("sampling",))
        if options:
            raise TypeError(f"submit: no option '{next(iter(options))}': there are "
                            f"{_names('llm42_request_desc', 'llm42_sampling', without=own)}")
        number = ctypes.c_int64()
        with self._alone(True):
            engine = self._pointer()
            self._release_dead()
            _check(lib.llm42_engine_submit(engine, ctypes.byref(desc), ctypes.byref(number), ctypes.byref(error)),
                   error)
            struct = lib.llm42_engine_request(engine, number.value).contents
            request = Request(self.model, _RequestMemory(self._memory, number.value, self._dead), struct)
            self._live[number.value] = self._known[number.value] = request
        return request

    def cancel(self, request):
        """Ends a request. Its committed tokens stay."""
        with self._alone(True):
            pointer = self._pointer()
            if not isinstance(request, Request) or self._known.get(request.id) is not request:
                raise Error(f"cancel: {request!r} is no request of this engine: give what submit returned")
            _check(lib.llm42_engine_cancel(pointer, request.id, ctypes.byref(self._error)), self._error)
            self._forget(request)

    def _forget(self, request):
        if request.finished:
            self._live.pop(request.id, None)

    def _release_dead(self):
        dead, unfinished = self._dead, C.constants["LLM42_INVALID"]
        while dead:
            if lib.llm42_engine_release(self._pointer(), dead[0], None) == unfinished:
                self._early.add(dead[0])
            dead.popleft()

    def _run(self, types, seconds=_SLICE):
        """Runs for a while and puts events of these types into _pending. True: every request is finished."""
        with self._alone():
            events, pointer = self._events, self._pointer()
            if self._dead:
                self._release_dead()
            events.types = types
            try:
                self._inside = True
                result = lib.llm42_py_run(pointer, self._by_ref[0], seconds, self._by_ref[1])
            finally:
                self._inside = False
            if events.count:
                self._collect(events)
            if self._raised.exception is not None:
                self._raised.again()
            if result < 0:
                _check(result, self._error)
            return result == 1

    def _collect(self, events):
        """Moves the events from C into _pending. Ctrl-C may come between any two steps. So one assignment says that the
        batch is whole, and the steps behind it, which _alone repeats then, change nothing if they are done twice."""
        if self._batch is None:
            count, string_at = events.tokens, ctypes.string_at
            rows = _EVENT.iter_unpack(string_at(events.event, events.count * _EVENT.size))
            tokens = logprobs = None
            if count:
                tokens = np.frombuffer(string_at(events.token, 4 * count), np.int32)
                logprobs = string_at(events.logprob, 4 * count)  # seldom asked for
            batch, ended = collections.deque(), []
            live, words, add, new = self._live, _TYPE_WORDS, batch.append, tuple.__new__
            for row in rows:
                request = live.get(row[0])
                if request is None and row[0]:
                    request = self._known.get(row[0])
                add(new(Event, (words[row[3]], request, row, tokens, logprobs)))
                if row[3] == _FINISHED:
                    ended.append(batch[-1])
            self._batch = batch, ended
        batch, ended = self._batch
        self._pending.append(batch)  # if it is there twice, it is empty the second time
        events.count = events.tokens = 0
        for event in ended:
            number = event.row[0]
            if event.request is not None:
                event.request._ended(event.row[6])
            if number in self._early:
                self._dead.append(number)
                self._early.discard(number)
            self._live.pop(number, None)
        self._batch = None

    def events(self, *types):
        """Runs until every request is finished, and yields events of these types ("all": of every type).

        Requests may be submitted and cancelled meanwhile. Default: committed, rolled_back, finished."""
        mask = _mask(types or _SHOWN)
        wanted = {word for word, value in _EVENT_TYPES.items() if mask >> value & 1}
        mask |= 1 << _FINISHED
        pending = self._pending
        while not self._run(mask) or pending:
            while pending:
                try:
                    batch = pending[0]
                    while batch:
                        event = batch[0]
                        del batch[0]  # and no popleft(): Ctrl-C comes behind a call, and the event would be lost
                        if event.type in wanted:
                            yield event
                    if pending[0] is batch:
                        del pending[0]
                except IndexError:  # the loop of another thread has taken it
                    pass

    def __iter__(self):
        return self.events()

    def run(self):
        """Runs until every request is finished."""
        for _ in self.events("finished"):
            pass

    def generate(self, prompts, progress=None, **options):
        """Answers prompts (texts, ids, or dicts of submit's arguments) with submit's options; returns the Requests.

        One text or one list of ids gives one Request. progress: a bar of tqdm; default: on a terminal. Ctrl-C raises
        Interrupted, which has the answers. Events of other requests that run meanwhile are dropped."""
        with self._alone():  # up to the end, since what it cancels must not run meanwhile
            return self._generate(prompts, progress, options)

    def _generate(self, prompts, progress, options):
        if "prompt" in options:
            raise TypeError("generate: prompt: the prompts are its first argument: give them there alone")
        prompts = prompts if hasattr(prompts, "__getitem__") else list(prompts)
        one = isinstance(prompts, (str, dict)) or (len(prompts) > 0 and np.ndim(prompts[0]) == 0
                                                  and not isinstance(prompts[0], (str, dict)))
        requests = []
        bar = None
        try:
            for prompt in [prompts] if one else prompts:
                asked = {**options, **prompt} if isinstance(prompt, dict) else {"prompt": prompt, **options}
                requests.append(self.submit(**asked))
            bar = _bar(len(requests), progress)
            left, idle = {r.id for r in requests}, False
            while left and not idle:
                idle = self._run(1 << _FINISHED)
                for event in itertools.chain.from_iterable(self._pending):
                    if event.request is not None and event.request.id in left:
                        left.remove(event.request.id)
                        if bar is not None:
                            bar.update()
                self._pending.clear()
        except BaseException as exception:
            self._end(requests)
            if isinstance(exception, KeyboardInterrupt):
                raise Interrupted(requests) from None
            raise
        finally:
            if bar is not None:
                bar.close()
        return requests[0] if one else requests

    def _end(self, requests):
        """Cancels what generate has begun. Its events are nobody's."""
        if self._memory is None:
            return
        for request in requests:
            if not request.finished:
                lib.llm42_engine_cancel(self._pointer(), request.id, None)
            self._live.pop(request.id, None)
        self._raised.exception = None
        self._collect(self._events)  # other requests may have ended
        self._pending.clear()

    def __repr__(self):
        return f"<llm42.Engine: {self.model!r}, {'closed' if self._memory is None else f'{len(self._live)} requests'}>"


_SHOWN = ("committed", "rolled_back", "finished")
_TYPE_WORDS = _by_value("llm42_event_type")
_FINISH_WORDS = _by_value("llm42_finish")
_SCHEDULE_WORDS = _by_value("llm42_schedule")
_FINISHED = _EVENT_TYPES["finished"]


def _mask(types):
    if "all" in types:
        types = [word for word in _EVENT_TYPES if word != "none"]
    return sum({1 << _enum_value("llm42_event_type", "event", word) for word in types})


def _bar(total, progress):
    if progress is False or total < 2:
        return None
    try:
        import tqdm
    except ImportError:
        return None
    return tqdm.tqdm(total=total, unit="answer", disable=None if progress is None else False)


def _as_dict(struct):
    values, kinds = {}, C.fields[type(struct).__name__]
    for name, kind in struct._fields_:
        value = getattr(struct, name)
        if isinstance(value, ctypes.Structure):
            values[name] = _as_dict(value)
        elif isinstance(value, ctypes.Array):
            values[name] = list(value)
        elif isinstance(value, (bool, int, float)) and kind is not ctypes.c_void_p:
            values[name] = _enum_word(kinds[name], value) if kinds.get(name) in C.enums else value
    return values


# Scores ---------------------------------------------------------------------------------------------------------------

Score = collections.namedtuple("Score", "ids logprobs top_ids top_logprobs")
Score.__doc__ = """Of a text of n tokens. logprobs[i] is the log-probability of ids[i], and NaN for the first. The rows
top_ids[i] and top_logprobs[i] have the likeliest tokens at position i, best first, up to position n, which comes behind
the text. The first row has -1 and NaN, since nothing stands before it. They are None if no top was asked for."""


class Scorer(_Single):
    """Log-probabilities of texts, from passes of a backend, without an engine: the bits of build/score.

    schedule, rows: the order of sums and the rows of a pass. Other options: fields of llm42_numerics and of the
    backend's own desc, tensor_parallel, and max_context (default: the model's, at most 8192)."""

    def __init__(self, model, backend="cpu", schedule="invariant", rows=32, tensor_parallel=1, max_context=0,
                 **options):
        self.model = model if isinstance(model, Model) else Model(model)
        vocab, context, page = self.model.config["vocab"], self.model.config["context"], 16
        self._table, keep, error = _backend(backend).contents, [], S["llm42_error"]()
        self._context = max_context or min(context, 8192)
        self._schedule = _enum_value("llm42_schedule", "schedule", schedule)
        pages = -(-self._context // page)
        desc = S["llm42_backend_desc"](
            model=self.model._memory.pointer, tensor_parallel=tensor_parallel, max_rows=rows, max_context=self._context,
            pages=pages, page_size=page, max_running=1, fixed_rows=rows, schedules=1 << self._schedule)
        _take(desc.numerics, options, keep)
        backend_desc = _backend_desc(backend, options, keep)
        if options:
            raise TypeError(f"Scorer: no option '{next(iter(options))}': there are "
                            f"{_names('llm42_numerics', _BACKEND_DESC[backend])}")
        numerics = desc.numerics
        numerics.compute = numerics.compute or C.constants["LLM42_DTYPE_BF16"]
        numerics.leaves = numerics.leaves or 1
        if numerics.compute == C.constants["LLM42_DTYPE_FP32"]:
            numerics.logits_fp32 = True
        desc.backend_desc = ctypes.addressof(backend_desc)
        state = ctypes.c_void_p()
        _check(self._table.open(ctypes.pointer(state), ctypes.pointer(desc), ctypes.pointer(error)), error)
        self._memory = _Memory(state, self._table.close, keep, desc, backend_desc, self.model._memory)
        self._lock = threading.RLock()
        self._rows = np.zeros(rows, np.dtype(S["llm42_row"]))
        self._out = np.zeros(rows, np.dtype(S["llm42_output"]))
        self._logits = np.zeros((rows, vocab), np.float32)
        self._pages = np.arange(pages, dtype=np.int32)
        self._texts = 0  # so far: the pages hold the last one

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        with self._alone():
            self._memory = None

    @contextlib.contextmanager
    def _alone(self):
        if not self._lock.acquire(blocking=False):
            raise Error("another thread runs this scorer: use it from one thread at a time")
        try:
            yield
        finally:
            self._lock.release()

    def logits(self, prompt):
        """Yields (first position, logits [rows, V]) of pass after pass. The array is overwritten by the next pass, and
        another text ends this one."""
        with self._alone():
            self._texts += 1
            number = self._texts
        if self._memory is None:
            raise Error("the scorer is closed")
        ids = self.model.ids(prompt, "score")
        vocab = self._logits.shape[1]
        if not 0 < len(ids) <= self._context:
            raise ValueError(f"score: {len(ids)} tokens: must be from 1 to the context of {self._context}")
        if ids.max() >= vocab:
            raise ValueError(f"score: token {ids.max()}: the model's vocabulary has {vocab}")
        for begin in range(0, len(ids), len(self._rows)):
            with self._alone():
                if self._memory is None:
                    raise Error("the scorer is closed")
                if self._texts != number:
                    raise Error("logits: the scorer has begun another text: use a Scorer for each, or one after the "
                                "other")
                count = self._pass(ids, begin)
            yield begin, self._logits[:count]

    def _pass(self, ids, begin):
        """Runs the pass of the rows from `begin` on. Returns their number."""
        error = S["llm42_error"]()
        fixed = self._schedule == C.constants["LLM42_SCHEDULE_FIXED"]
        count = min(len(self._rows), len(ids) - begin)
        seq = S["llm42_seq"](
            request=1, pages=self._pages.ctypes.data_as(INT32), state=begin, state_to=begin + count)
        row = self._rows[:count]
        row["seq"], row["position"], row["token"] = 0, np.arange(begin, begin + count), ids[begin:begin + count]
        row["flags"] = C.constants["LLM42_ROW_SAMPLE"]
        run = S["llm42_pass"](
            schedule=self._schedule, rows=count, shape=len(self._rows) if fixed else count,
            row=ctypes.cast(self._rows.ctypes.data, ctypes.POINTER(S["llm42_row"])), seq=ctypes.pointer(seq),
            out=ctypes.cast(self._out.ctypes.data, ctypes.POINTER(S["llm42_output"])),
            logits=self._logits.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))
        _check(self._table.run(self._memory.pointer, ctypes.pointer(run), ctypes.pointer(error)), error)
        if (self._out["token"][:count] < 0).any():
            raise Error(f"{self.model.name}: position {begin + int((self._out['token'][:count] < 0).argmax())}: "
                        "the logits are not finite", "LLM42_BACKEND")
        return count

    def reload(self):
        """Takes up weights that were written (see Model.weights)."""
        error = S["llm42_error"]()
        with self._alone():
            if self._memory is None:
                raise Error("the scorer is closed")
            self._texts += 1  # logits() of a text that has begun is refused
            if self._table.reload:
                _check(self._table.reload(self._memory.pointer, ctypes.pointer(error)), error)

    def score(self, prompt, top=0, **sampling):
        """The Score of a text or of token ids, with the `top` likeliest tokens of each position.

        Log-probabilities are raw, those of the softmax of the logits. With fields of llm42_sampling, such as
        temperature=0.8 and top_k=20, they are those with which tokens are then drawn: -inf for one that is removed."""
        drawn, keep, error = S["llm42_sampling"](temperature=1), [], S["llm42_error"]()
        _take(drawn, sampling, keep)
        if sampling:
            raise TypeError(f"score: no option '{next(iter(sampling))}': there are {_names('llm42_sampling')}")
        _check(lib.llm42_sampling_check(ctypes.byref(drawn), ctypes.byref(error)), error)
        every = not 0 < drawn.top_k < self._logits.shape[1] and drawn.top_p in (0, 1) and drawn.min_p == 0
        raw = drawn.temperature == 1 and every  # no filter removes a token
        with self._alone():
            return self._score(prompt, top, None if raw else drawn)

    def _sampled(self, logits, tokens, drawn):
        """The log-probabilities with which tokens [rows, n] are drawn."""
        values, real = np.empty(logits.shape[1], np.float32), ctypes.POINTER(ctypes.c_float)
        found = np.empty(tokens.shape, np.float32)
        for i, of in enumerate(tokens):
            lib.llm42_sampled_logprobs(logits[i].ctypes.data_as(real), len(values), ctypes.byref(drawn),
                                       values.ctypes.data_as(real))
            found[i] = values[of]
        return found

    def _score(self, prompt, top, drawn):
        ids, vocab = self.model.ids(prompt, "score"), self._logits.shape[1]
        if not 0 <= top <= vocab:
            raise ValueError(f"top: {top}: must be from 0 to the vocabulary of {vocab}")
        logprobs = np.full(len(ids), np.nan, np.float32)
        top_ids = np.full((len(ids) + 1, top), -1, np.int32)
        top_logprobs = np.full((len(ids) + 1, top), np.nan, np.float32)
        for begin, logits in self.logits(ids):
            # The greedy pass gives 0 - log(sum) of the likeliest token. That of another one is its logit minus the
            # largest one minus log(sum): the same operations as in the library, so the same bits.
            out = self._out[:len(logits)]
            best = logits[np.arange(len(logits)), out["token"]]
            following = ids[begin + 1:begin + 1 + len(logits)]
            at = np.arange(len(following))
            logprobs[begin + 1:begin + 1 + len(at)] = (
                self._sampled(logits, following[:, None], drawn)[:, 0] if drawn else
                logits[at, following] - best[at] + out["logprob"][at])
            if top:
                order = np.argsort(-logits, axis=1, kind="stable")[:, :top]  # of equal ones the lower id first
                top_ids[begin + 1:begin + 1 + len(logits)] = order
                top_logprobs[begin + 1:begin + 1 + len(logits)] = (
                    self._sampled(logits, order, drawn) if drawn else
                    np.take_along_axis(logits, order, 1) - best[:, None] + out["logprob"][:, None])
        return Score(ids, logprobs, *((top_ids, top_logprobs) if top else (None, None)))


# Transcripts, audits, sweeps ------------------------------------------------------------------------------------------

class Answer:
    """An answer of a transcript: every field of llm42_answer. Arrays are views of the transcript."""

    def __init__(self, struct, owner):
        self._struct, self._owner = struct, owner

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._struct, name)
        return value.decode() if isinstance(value, bytes) else _enum_word("llm42_finish", value) \
            if name == "finish" else value

    prompt = property(lambda self: _view(self._struct.prompt, self._struct.prompt_count, "<i4", self._owner))
    tokens = property(lambda self: _view(self._struct.tokens, self._struct.count, "<i4", self._owner))
    logprobs = property(lambda self: _view(self._struct.logprobs, self._struct.count, "<f4", self._owner))
    stop = property(lambda self: list(self._struct.stop[:self._struct.stop_count]))
    sampling = property(lambda self: _as_dict(self._struct.sampling))


class Transcript(_Single):
    """A transcript that generate --record or Engine(record=...) wrote: a list of Answers, and the fields of
    llm42_transcript. Reading checks its form and its digests."""

    def __init__(self, path):
        pointer, error = ctypes.POINTER(S["llm42_transcript"])(), S["llm42_error"]()
        self.path = find(_name(path, "transcript", empty=False))
        _check(lib.llm42_transcript_load(ctypes.byref(pointer), self.path.encode(), ctypes.byref(error)), error)
        self._memory = _Memory(pointer, lib.llm42_transcript_free)
        self.numerics = _as_dict(pointer.contents.numerics)
        self.answers = [Answer(pointer.contents.answer[i], self._memory) for i in range(pointer.contents.count)]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._memory.pointer.contents, name)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def __len__(self):
        return len(self.answers)

    def __getitem__(self, at):
        return self.answers[at]


def program(name):
    """A program of llm42: beside the library, as PREFIX/bin/llm42-NAME, or on PATH."""
    places = [os.path.join(os.path.dirname(library_path), name), os.path.join(ROOT, "build", name),
              os.path.join(ROOT, "..", "..", "bin", "llm42-" + name), shutil.which("llm42-" + name)]
    for place in places:
        if place and os.access(place, os.X_OK):
            return place
    raise FileNotFoundError(f"no program {name}: run `make build/{name}`")


def _file(path, what):
    """A name for a command line, where one that begins with - would be an option."""
    path = find(_name(path, what, empty=False))
    return "./" + path if path.startswith("-") else path


def _arguments(options):
    """--key value of each option: a list is joined by commas, True is a flag, and None and False are left out."""
    words = []
    for key, value in options.items():
        if value is None or value is False:
            continue
        if key in ("help", "version"):
            raise TypeError(f"{key}: the program would print this and do nothing else: run it in a shell")
        words.append("--" + key.replace("_", "-"))
        if value is not True:
            words.append(",".join(map(str, value)) if isinstance(value, (list, tuple, range, np.ndarray))
                         else str(value))
    return words


def _failure(name, done, result):
    """The error of a program that has failed. For a file that cannot be opened its result is that of the library."""
    text = done.stderr.strip() or (f"{name} ended with status {done.returncode}" if done.returncode else
                                   f"{name} has printed something else than a result: {done.stdout[:200].strip()}")
    return Error(text, "LLM42_IO" if re.search(": (cannot (open|read|write)|no such model [^:]*): ", text) else result)


Audit = collections.namedtuple("Audit", "verified text")
Audit.__doc__ = "verified: all that was asked for is verified to the bit. text: what build/audit printed."


def audit(path, model, **options):
    """Computes the answers of a transcript again by build/audit, whose options are share=0.05, backend="cuda" and so
    on. model: your own copy. Raises Error if a comparison is not possible."""
    if model != "from-file":
        model = _file(model.path if isinstance(model, Model) else model, "model")
    done = subprocess.run([program("audit"), _file(path, "transcript"), "--model", model, *_arguments(options)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    verdict = re.search("^(NOT VERIFIED|verified to the bit): ", done.stdout, re.M)
    if done.returncode not in (0, 1) or not verdict:
        raise _failure("audit", done, "LLM42_FORMAT")
    return Audit(done.returncode == 0 and verdict[1] != "NOT VERIFIED", done.stdout)


def sweep(**options):
    """Runs build/sweep, whose options are window=[16, 32], qps="offline" and so on. A DataFrame of pandas where that
    is installed, else a list of dicts, with the column names of the TSV. .attrs has what the TSV's comments say, by
    their first words: "configuration", "grid", "device", "source" and so on. out=FILE keeps the TSV, too."""
    if "calibration" in options:
        options["calibration"] = _file(options["calibration"], "calibration")
    with tempfile.TemporaryDirectory() as folder:
        table = os.fspath(options.get("out") or os.path.join(folder, "sweep.tsv"))
        done = subprocess.run([program("sweep"), *_arguments({"quiet": True, **options, "out": table})],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        if done.returncode or not os.path.isfile(table):
            raise _failure("sweep", done, "LLM42_INVALID")
        with open(table, encoding="utf-8") as file:
            text = [line.rstrip("\n") for line in file]
    lines = [line.split("\t") for line in text if not line.startswith("#")]
    rows = _Rows(dict(zip(lines[0], map(_number, line))) for line in lines[1:])
    try:
        import pandas
        rows = pandas.DataFrame(rows, columns=lines[0])
    except ImportError:
        pass
    about = itertools.takewhile(lambda line: not line.startswith("# duration_s: "), text)  # the columns come then
    rows.attrs = dict(line[2:].split(": ", 1) for line in about if ": " in line)
    return rows


class _Rows(list):
    """What sweep returns without pandas: a list that has .attrs, too."""


def _number(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
