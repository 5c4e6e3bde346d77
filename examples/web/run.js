// run.js: what a run has shown. As in examples/rollback/record.c, everything that changes carries the number of the
// pass that changed it, so the page can go back. Passes count from 1.

let bytes_of_token = [];

export function set_tokens(hex) {
  bytes_of_token = hex.map((h) => Uint8Array.from((h.match(/../g) || []).map((pair) => parseInt(pair, 16))));
}

// The text of some tokens. A character may be cut in two by the end.
export function text_of(tokens) {
  const parts = tokens.map((t) => bytes_of_token[t] || new Uint8Array(0));
  const all = new Uint8Array(parts.reduce((sum, p) => sum + p.length, 0));
  let at = 0;
  for (const p of parts) all.set(p, at), at += p.length;
  return new TextDecoder('utf-8', {ignoreBOM: true}).decode(all);
}

// One token where it stands alone: a dot for its leading space, because tokens are parts of words.
export function name_of(token) {
  const text = text_of([token]);
  return (text || `#${token}`).replace(/^ /, '·').replace(/\n/g, '¶');
}

// Kinds of passes, with their letters as in build/rollback.
export const KINDS = {
  fast: {letter: '.', name: 'fast pass'},
  invariant: {letter: 'I', name: 'INVARIANT pass'},
  prompt: {letter: 'P', name: 'pass of prompts'},
  replay: {letter: 'R', name: 'replay pass'},
  rollback: {letter: 'X', name: 'replay pass with a rollback'},
};

export class Run {
  // how: {preset, window, group}
  constructor(requests, how = {}) {
    this.requests = requests;
    this.how = how;
    this.lanes = requests.map((r) => ({...r, prompt: [], items: [], windows: [], finished: 0}));
    this.frames = [];
    this.rollbacks = [];
    this.ended = this.stopped = false;  // it has run to its end, or a part of it
    this.tokens = 0;                    // returned
  }

  get passes() {
    return this.frames.length;
  }

  // Takes a part of a worker's `serve`. Returns whether a pass was in it.
  add({events = [], lanes = []}) {
    const now = this.frames.length + 1;
    const pass = events.find((e) => e.type === 'pass');
    for (const {lane, prompt} of lanes) {
      this.lanes[lane].prompt = prompt;
      this.lanes[lane].born = now;
    }
    let dropped = false;
    for (const e of events) {
      const lane = this.lanes[e.lane];
      if (e.type === 'candidate') lane.items.push(this.item(e.tokens[0], 'candidate', e.position, now, 0, e.bits?.[0]));
      if (e.type === 'verified') {
        lane.agreed = e.n;
        lane.windows.push({pass: now, agreed: e.n, rollback: false});
      }
      if (e.type === 'committed') this.committed(lane, e, now);
      if (e.type === 'rolled back') {
        dropped = true;
        lane.windows.at(-1).rollback = true;
        lane.differed = true;
        this.rollbacks.push({...e, pass: now, agreed: lane.agreed, index: e.position - lane.agreed});
      }
      if (e.type === 'rolled back' || e.type === 'preempted') {
        for (const i of lane.items) {
          if (!i.settled && i.index >= e.position) i.settled = now, i.state = 'struck';
        }
      }
      if (e.type === 'finished') lane.finished = now;
    }
    // The token that the replay pass puts in the place of one that differs may come before or behind the rollback.
    for (const r of this.rollbacks) {
      if (r.pass !== now) continue;
      const own =
          this.lanes[r.lane].items.find((i) => i.born === now && i.index === r.position && i.state !== 'struck');
      if (own) own.state = 'verdict', own.rollback = r;
      const wrong =
          this.lanes[r.lane].items.find((i) => i.settled === now && i.index === r.position && i.state === 'struck');
      if (wrong) wrong.rollback = r;
    }
    if (!pass) return false;
    const other = pass.schedule === 'invariant' ? 'invariant' : 'prompt';
    const kind = pass.schedule === 'fast' ? 'fast' : !pass.windows ? other : dropped ? 'rollback' : 'replay';
    this.frames.push({...pass, kind, tokens: this.tokens});
    return true;
  }

  item(token, state, index, born, settled, bits) {
    return {token, state, index, born, settled, bits};
  }

  committed(lane, e, now) {
    e.tokens.forEach((token, i) => {
      const index = e.position + i;
      const candidate = lane.items.find((c) => !c.settled && c.index === index && c.state === 'candidate');
      this.tokens++;
      if (candidate)
        candidate.state = 'committed', candidate.settled = now, candidate.bits = e.bits[i];
      else {
        lane.items.push(this.item(token, lane.deterministic ? 'committed' : 'ordinary', index, now, now, e.bits[i]));
      }
    });
  }

  // The tokens of a lane that stand, with their bits.
  answer(k) {
    return this.lanes[k].items.filter((i) => i.settled && i.state !== 'struck');
  }

  // The pass that drew the candidate that differed.
  drawn_in(rollback) {
    const drawn = (i) => i.index === rollback.position && i.settled === rollback.pass && i.state === 'struck';
    return this.lanes[rollback.lane].items.find(drawn)?.born;
  }

  // Its sums are those of the replay. It may differ because of the keys and values that it read.
  drew_invariant(rollback) {
    return this.frames[this.drawn_in(rollback) - 1]?.schedule === 'invariant';
  }

  // How an item looked after a pass.
  static look(item, pass) {
    return item.settled && item.settled <= pass ? item.state : 'candidate';
  }

  // The command of build/diff that adds the sums of a rollback both ways, or why there is none. See
  // examples/rollback/record.c, diff_command.
  diff_arguments(rollback) {
    const lane = this.lanes[rollback.lane], n = rollback.agreed + 1;
    const drawn = [];
    for (let i = 0; i < n; i++) {
      const of = lane.items.filter(
          (c) => c.index === rollback.index + i && c.settled === rollback.pass && c.born !== rollback.pass);
      if (!of.length) return {why: 'a candidate of this window was not recorded'};
      drawn.push(of.at(-1).born);
    }
    const before = lane.windows.filter((w) => w.pass < rollback.pass).at(-1);
    if (before && drawn[0] <= before.pass) {
      return {
        why: `pass ${before.pass}, a replay, came between the passes that drew these candidates, and wrote keys and ` +
            'values that the earlier ones had read'
      };
    }
    const frames = drawn.map((pass) => this.frames[pass - 1]);
    const mixed = frames.some((f) => f.schedule !== 'fast');
    const schedules = mixed ? frames.map((f) => f.schedule).join('+') : 'fast';
    const kept = this.lanes[rollback.lane].items.filter(
        (i) => i.index < rollback.index + rollback.agreed && i.state !== 'struck' && i.settled &&
            i.settled <= rollback.pass);
    const ids = [...lane.prompt, ...kept.sort((a, b) => a.index - b.index).map((i) => i.token)];
    const {preset, window, group} = this.how;
    const replay = preset === 'paper' ? `schedule=fixed,rows=${window * group}` : `schedule=invariant,rows=${n}`;
    return {
      passes: drawn,
      args: [
        '--model', 'tiny42', '--prompt', String(lane.prompt.length + rollback.index - 1), '-a',
        `schedule=${schedules},rows=${frames.map((f) => f.rows).join('+')}`, '-b', replay, '--explain', '--ids',
        ids.join(',')
      ]
    };
  }
}
