// worker.js: runs the engine and the programs beside the page, so that the page answers while they work. The page talks
// to it through engine.js. A message is {id, call, with}; the answer is {id, result} or {id, error}, and before it
// there may be some {id, part}.
import {Wasi} from './wasi.js';

const TINY42 = ['config.json', 'model.safetensors', 'tokenizer.json'].map((name) => `tiny42/${name}`);
const fetched = new Map();
/** @type {any} */
let engine = null;  // of web.c
let model = null;   // a promise of what it says of its model
let stop_at = 0;    // calls up to this number are to end
const modules = new Map();

async function fetch_bytes(path) {
  if (!fetched.has(path)) {
    let answer, bytes;
    try {
      answer = await fetch(new URL(path, import.meta.url));
      bytes = await answer.arrayBuffer();
    } catch {
      throw new Error(`${path}: the server did not answer, or not to the end: reload the page`);
    }
    if (!answer.ok) throw new Error(`${path}: the server answered ${answer.status}`);
    fetched.set(path, new Uint8Array(bytes));
  }
  return fetched.get(path);
}

async function files_of(paths) {
  const files = new Map();
  for (const path of paths) files.set(path, await fetch_bytes(path));
  return files;
}

async function module_of(name) {
  if (!modules.has(name)) {
    const bytes = await fetch_bytes(`${name}.wasm`);
    try {
      modules.set(name, await WebAssembly.compile(bytes));
    } catch (error) {
      // Browsers have had SIMD since 2023.
      throw new Error(`${name}.wasm is damaged, or this browser is older than its SIMD: ${error.message}`);
    }
  }
  return modules.get(name);
}

// ---- the engine ----
function text_in(text) {
  const bytes = new TextEncoder().encode(text + '\0');
  engine.wasi.bytes(engine.web_room(bytes.length), bytes.length).set(bytes);
  return bytes.length - 1;
}

// Calls a function of web.c that returns a text, and reads that as JSON.
function ask(name, ...values) {
  const at = engine[name](...values), memory = new Uint8Array(engine.memory.buffer);
  const answer = JSON.parse(new TextDecoder().decode(memory.subarray(at, memory.indexOf(0, at))));
  if (answer.error) throw new Error(answer.error);
  return answer;
}

async function load_engine() {
  if (engine) return;
  const wasi = new Wasi({files: await files_of(TINY42)});
  engine = {wasi, ...(await wasi.instantiate(await module_of('web')))};
  engine._initialize();
}

// Lets messages in. (A timer would wait for 4 ms.)
const breathe = () => new Promise((resolve) => {
  const channel = new MessageChannel();
  channel.port1.onmessage = resolve;
  channel.port2.postMessage(0);
});

const calls = {
  // Loads it once. If that failed, all that needs the model fails with the same words.
  model() {
    return model ??= load_engine().then(() => {
      text_in('tiny42');
      return ask('web_model');
    });
  },

  async encode({text}) {
    await calls.model();
    return ask('web_encode', text_in(text));
  },

  // Serves requests, one more every `every` passes. Each pass is a part: {events, lanes}.
  async serve({preset, window = 0, group = 0, wait = false, every = 2, requests}, id, part) {
    await calls.model();
    if (id <= stop_at) return {stopped: true};  // it was stopped while it waited: opening an engine takes a while
    text_in(preset);
    const opened = ask('web_open', window, group, wait ? 1 : 0);
    part({opened});
    let next = 0, idle = false;
    for (let pass = 0; (!idle || next < requests.length) && id > stop_at; pass++) {
      const lanes = [];
      for (; next < requests.length && (every === 0 || pass >= every * next); next++) {
        const {text, tokens, deterministic, temperature = 0, seed = 42} = requests[next];
        const size = text_in(text);
        lanes.push(ask('web_submit', size, tokens, deterministic ? 1 : 0, temperature, seed));
      }
      const step = ask('web_step');
      idle = step.idle;
      if (step.events.length || lanes.length) part({events: step.events, lanes});
      if (pass % 4 === 3) await breathe();
    }
    return {stopped: id <= stop_at};
  },

  async simulate({preset, calibration, share, qps, requests, running, slowdown = 0, window = 0, group = 0, seed = 42}) {
    await load_engine();
    const path = `calibration/${calibration}.tsv`;
    engine.wasi.files.set(path, await fetch_bytes(path));
    text_in(`${preset} ${path}`);
    return ask('web_simulate', share, qps, requests, running, slowdown, window, group, seed);
  },

  // Runs a program, such as audit, on tiny42 and on files of the page. Each piece of its text is a part.
  async program({name, args, files = [], texts = {}}, id, part) {
    const all = await files_of([...TINY42, ...files]);
    for (const path of TINY42) all.set(`examples/${path}`, all.get(path));  // where digest looks for it
    for (const [path, text] of Object.entries(texts)) all.set(path, new TextEncoder().encode(text));
    const wasi = new Wasi({files: all, args, write: (text, fd) => part({text, fd})});
    return wasi.run(await module_of(name));
  },
};

self.onmessage = async ({data: {id, call, with: values}}) => {
  if (call === 'stop') {
    stop_at = Math.max(stop_at, id);
    return;
  }
  try {
    const result = await calls[call](values || {}, id, (part) => self.postMessage({id, part}));
    self.postMessage({id, result});
  } catch (error) {
    self.postMessage({id, error: String(error.message || error)});
  }
};
