// wasi.js: runs a WebAssembly program that was compiled for WASI (clang --target=wasm32-wasi) on files in memory. It
// has what llm42's programs call: reading files, writing text, the clock and the arguments. All other calls fail as
// "not supported". The programs' regular expressions (examples/web/wasi/pcre2.h) are JavaScript's.

const SUCCESS = 0, BADF = 8, NOENT = 44, NOSYS = 52, ROFS = 69;
const PREOPENED = 3;  // the number of the only open folder, which holds all files

export class Exit extends Error {
  constructor(status) {
    super(`the program ended with status ${status}`);
    this.status = status;
  }
}

// files: a Map from a path without a leading slash, such as "tiny42/config.json", to a Uint8Array.
// write: called with the text that the program writes, and with 1 (standard output) or 2 (errors).
export class Wasi {
  constructor({files, args = [], write = (_text, _fd) => {}}) {
    this.files = files;
    this.args = ['llm42', ...args].map((a) => new TextEncoder().encode(a + '\0'));
    this.write = write;
    this.open = new Map();  // file descriptor: {data, at}
    this.next = PREOPENED + 1;
    this.decoders = [null, new TextDecoder(), new TextDecoder()];
    this.patterns = [];
    /** @type {any} */
    this.instance = null;
  }

  async instantiate(module) {
    /** @type {Record<string, Function>} */
    const wasi = {};
    for (const {module: from, name} of WebAssembly.Module.imports(module)) {
      if (from === 'wasi_snapshot_preview1') wasi[name] = this[name] ? this[name].bind(this) : () => NOSYS;
    }
    const host = {
      regex_compile: this.regex_compile.bind(this),
      regex_match: this.regex_match.bind(this),
    };
    this.instance = await WebAssembly.instantiate(module, {wasi_snapshot_preview1: wasi, host});
    return this.instance.exports;
  }

  // Runs main() and returns its status.
  async run(module) {
    const {_start} = await this.instantiate(module);
    try {
      _start();
      return 0;
    } catch (error) {
      if (error instanceof Exit) return error.status;
      throw error;
    }
  }

  view() {
    return new DataView(this.instance.exports.memory.buffer);
  }
  bytes(at, size) {
    return new Uint8Array(this.instance.exports.memory.buffer, at, size);
  }
  text(at, size) {
    // Without ignoreBOM a U+FEFF in front is left out, and all places behind it are wrong.
    return new TextDecoder('utf-8', {ignoreBOM: true}).decode(this.bytes(at, size));
  }

  // The path of a file or folder, relative to the preopened folder.
  path(at, size) {
    return this.text(at, size).replace(/^(\.?\/)+/, '').replace(/\/+$/, '');
  }
  is_folder(path) {
    if (path === '' || path === '.') return true;
    for (const name of this.files.keys()) {
      if (name.startsWith(path + '/')) return true;
    }
    return false;
  }

  put_stat(at, folder, size) {
    const view = this.view();
    this.bytes(at, 64).fill(0);
    view.setUint8(at + 16, folder ? 3 : 4);
    view.setBigUint64(at + 24, 1n, true);
    view.setBigUint64(at + 32, BigInt(size), true);
  }

  // ---- arguments, clock and end ----
  args_sizes_get(count, size) {
    this.view().setUint32(count, this.args.length, true);
    this.view().setUint32(size, this.args.reduce((sum, a) => sum + a.length, 0), true);
    return SUCCESS;
  }
  args_get(pointers, at) {
    for (const a of this.args) {
      this.view().setUint32(pointers, at, true);
      this.bytes(at, a.length).set(a);
      pointers += 4, at += a.length;
    }
    return SUCCESS;
  }
  environ_sizes_get(count, size) {
    this.view().setUint32(count, 0, true);
    this.view().setUint32(size, 0, true);
    return SUCCESS;
  }
  environ_get() {
    return SUCCESS;
  }
  clock_time_get(id, precision, at) {
    const now = id === 0 ? performance.timeOrigin + performance.now() : performance.now();
    this.view().setBigUint64(at, BigInt(Math.round(now * 1e6)), true);
    return SUCCESS;
  }
  proc_exit(status) {
    throw new Exit(status);
  }
  sched_yield() {
    return SUCCESS;
  }

  // ---- files ----
  fd_prestat_get(fd, at) {
    if (fd !== PREOPENED) return BADF;
    this.view().setUint32(at, 0, true);
    this.view().setUint32(at + 4, 1, true);
    return SUCCESS;
  }
  fd_prestat_dir_name(fd, at) {
    this.bytes(at, 1)[0] = '/'.charCodeAt(0);
    return SUCCESS;
  }
  fd_fdstat_get(fd, at) {
    if (fd > PREOPENED && !this.open.has(fd)) return BADF;
    this.bytes(at, 24).fill(0);
    this.view().setUint8(at, fd < PREOPENED ? 2 : fd === PREOPENED ? 3 : 4);
    this.view().setBigUint64(at + 8, 0xffffffffffffffffn, true);
    this.view().setBigUint64(at + 16, 0xffffffffffffffffn, true);
    return SUCCESS;
  }
  fd_fdstat_set_flags() {
    return SUCCESS;
  }
  path_open(fd, flags, path, size, oflags, rights, inherited, fdflags, at) {
    const name = this.path(path, size), data = this.files.get(name);
    if (!data && !this.is_folder(name)) return oflags & 1 ? ROFS : NOENT;
    this.open.set(this.next, {data: data || new Uint8Array(0), at: 0, folder: !data});
    this.view().setUint32(at, this.next++, true);
    return SUCCESS;
  }
  path_filestat_get(fd, flags, path, size, at) {
    const name = this.path(path, size), data = this.files.get(name);
    if (!data && !this.is_folder(name)) return NOENT;
    this.put_stat(at, !data, data ? data.length : 0);
    return SUCCESS;
  }
  fd_filestat_get(fd, at) {
    const file = this.open.get(fd);
    if (!file && fd > PREOPENED) return BADF;
    this.put_stat(at, !file || file.folder, file ? file.data.length : 0);
    return SUCCESS;
  }
  read(fd, vectors, count, from, at) {
    const file = this.open.get(fd);
    if (!file) return fd === 0 ? (this.view().setUint32(at, 0, true), SUCCESS) : BADF;
    let place = from ?? file.at, sum = 0;
    for (let i = 0; i < count; i++) {
      const to = this.view().getUint32(vectors + 8 * i, true), size = this.view().getUint32(vectors + 8 * i + 4, true);
      const part = file.data.subarray(place, place + size);
      this.bytes(to, part.length).set(part);
      place += part.length, sum += part.length;
    }
    if (from === undefined) file.at = place;
    this.view().setUint32(at, sum, true);
    return SUCCESS;
  }
  fd_read(fd, vectors, count, at) {
    return this.read(fd, vectors, count, undefined, at);
  }
  fd_pread(fd, vectors, count, from, at) {
    return this.read(fd, vectors, count, Number(from), at);
  }
  fd_seek(fd, offset, whence, at) {
    const file = this.open.get(fd);
    if (!file) return fd < PREOPENED ? 70 : BADF;  // 70: a pipe
    file.at = Number(offset) + [0, file.at, file.data.length][whence];
    this.view().setBigUint64(at, BigInt(file.at), true);
    return SUCCESS;
  }
  fd_write(fd, vectors, count, at) {
    if (fd !== 1 && fd !== 2) return BADF;
    let sum = 0;
    for (let i = 0; i < count; i++) {
      const from = this.view().getUint32(vectors + 8 * i, true),
            size = this.view().getUint32(vectors + 8 * i + 4, true);
      if (size) this.write(this.decoders[fd].decode(this.bytes(from, size), {stream: true}), fd);
      sum += size;
    }
    this.view().setUint32(at, sum, true);
    return SUCCESS;
  }
  fd_close(fd) {
    return this.open.delete(fd) || fd <= PREOPENED ? SUCCESS : BADF;
  }

  // ---- regular expressions ----
  // Returns the number of a pattern, or -1 if JavaScript does not know it. Groups such as (?i:'s|'t) are spelt out,
  // because browsers before 2024 do not know them. Unicode counts a long s and the sign of kelvin as s and k.
  regex_compile(pattern, size) {
    const either = (c) => `[${c.toLowerCase()}${c.toUpperCase()}${{s: '\u017f', k: '\u212a'}[c.toLowerCase()] || ''}]`;
    const spell = (whole, inside) => `(?:${inside.replace(/[a-z]/gi, either)})`;
    try {
      return this.patterns.push(new RegExp(this.text(pattern, size).replace(/\(\?i:([^()\\[\]]*)\)/g, spell), 'gu')) -
          1;
    } catch {
      return -1;
    }
  }
  // Finds the first match at or behind byte `from` and puts the bytes at which it begins and ends. Returns 0: no match.
  regex_match(pattern, text, size, from, match) {
    const regex = this.patterns[pattern], head = this.text(text, from),
          whole = head + this.text(text + from, size - from);
    regex.lastIndex = head.length;
    const found = regex.exec(whole);
    if (!found) return 0;
    const encoder = new TextEncoder(), begin = encoder.encode(whole.slice(0, found.index)).length;
    this.view().setUint32(match, begin, true);
    this.view().setUint32(match + 4, begin + encoder.encode(found[0]).length, true);
    return 1;
  }
}
