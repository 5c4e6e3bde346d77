// cost.js: what determinism costs. The simulator, which is the engine on a virtual clock, serves a load under each
// mechanism. Below it, a map says which mechanism returns most tokens, by what an INVARIANT pass costs.
import {choice, element, say, slider, svg} from './dom.js';

const RUNNING = 64, REQUESTS = 256, TOKENS = 128, SEEDS = [42, 43, 44], MAP_REQUESTS = 128;
const CALIBRATIONS = {
  'h100-pcie-paper': {name: 'H100 (paper)', from: 'fitted to the LLM-42 paper’s figures', load: 30},
  'h200-llama-3.1-8b': {name: 'H200 (measured)', from: 'measured on an H200', load: 60},
};
const MECHANISMS = [
  {preset: 'nondeterministic', name: 'nondeterministic', what: 'answers drift'},
  {preset: 'dvr', name: 'dvr', what: 'decode, verify, roll back'},
  {preset: 'best', name: 'best', what: 'the cheaper of dvr and invariant'},
  {preset: 'invariant', name: 'invariant', what: 'all passes INVARIANT'},
];
const FIGURES = [
  {key: 'tokens_per_s', name: 'Tokens/s', show: (x) => x.toFixed(0)},
  {key: 'p50', name: 'Latency, P50', show: (x) => `${seconds(x)} s`},
  {key: 'p99', name: 'Latency, P99', show: (x) => `${seconds(x)} s`},
];
const SHARES = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
const SLOWER = [1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.4, 2.6, 2.8, 3];
const TIE = 0.01;
let page, form = {}, out = {}, shown = false, latest = 0, timer = 0;
const maps = new Map();  // by calibration, W and G: rows of cells

const seconds = (x) => x < 10 ? x.toFixed(2) : x.toFixed(1);
const power = (x) => String(2 ** x);

export function open(section, of_page) {
  page = of_page;
  window.addEventListener('resize', fit);
  const names = Object.entries(CALIBRATIONS).map(([key, {name}]) => [key, name]);
  form = {
    calibration: choice(
        'Device ', names, names[0][0],
        () => {
          form.load.input.max = CALIBRATIONS[form.calibration.value()].load;
          form.load.input.dispatchEvent(new Event('input'));
        }),
    share: slider('Deterministic', {min: 0, max: 100, step: 5, value: 30, show: (x) => `${x}%`}, changed),
    load: slider('Load', {min: 1, max: 30, value: 10, show: (x) => `${x} requests/s`}, changed),
    window: slider('W, tokens a window', {min: 2, max: 7, value: 4, show: power}, changed),
    group: slider('G, windows a pass', {min: 0, max: 7, value: 7, show: power}, changed),
  };
  out = {
    verdict: element('p', {class: 'say', id: 'cost-verdict', 'aria-live': 'polite'}),
    table: element('table', {class: 'bars'}),
    note: element('p', {class: 'faint small'}),
    map: element('div', {id: 'cost-map'}),
    at: element('p', {'aria-live': 'polite', id: 'cost-at'}),
    map_note: element('p', {class: 'faint small'}),
  };
  section.append(
      element('h2', {}, 'What does determinism cost, and which mechanism costs least?'),
      element('div', {class: 'controls'}, form.calibration, form.share, form.load, form.window, form.group),
      out.verdict,
      element(
          'div', {class: 'panes'},
          element('div', {class: 'pane'}, element('h3', {}, 'This load, in simulated time'), out.table, out.note),
          element(
              'div', {class: 'pane'}, element('h3', {}, 'Who returns most tokens per second?'), out.map, out.at,
              element(
                  'p', {class: 'legend'}, key('V', 'verification (dvr)'), key('I', 'INVARIANT passes'),
                  key('=', 'a tie within 1%'), element('span', {}, element('i', {class: 'here'}), 'the setting above')),
              out.map_note)));
}

function key(letter, text) {
  return element('span', {}, element('b', {class: `cell ${CLASSES[letter]}`}, letter), ` ${text}`);
}
const CLASSES = {
  V: 'verify',
  I: 'invariant',
  '=': 'tie'
};

// Draws the map as wide as its place is, which has no width while another view is shown.
function fit() {
  if (out.drawn && out.map.clientWidth) draw_map(...out.drawn);
}

export function show() {
  fit();
  if (shown) return;
  shown = true;
  changed();
}

// Sliders send many values: only the last one of a while is simulated.
function changed() {
  if (!shown) return;
  latest++;
  clearTimeout(timer);
  timer = setTimeout(simulate, 120);
}

function settings() {
  return {
    calibration: form.calibration.value(),
    share: form.share.value() / 100,
    qps: form.load.value(),
    window: 2 ** form.window.value(),
    group: 2 ** form.group.value(),
  };
}

async function simulate() {
  const mine = ++latest, s = settings(), current = () => mine === latest;
  const {from} = CALIBRATIONS[s.calibration];
  out.note.textContent = [
    `All times are simulated: Llama-3.1-8B by calibration ${s.calibration}, ${from}.`,
    `Load: ${REQUESTS} requests of 512 tokens in and ${TOKENS} out, at random times, at most ${RUNNING} at once.`,
    `A bar is the mean of ${SEEDS.length} runs with other arrivals; its line and the small numbers are the least and`,
    'the most. ▲: more requests come than it serves if all come at once.',
  ].join(' ');
  out.map_note.textContent = `The map: ${MAP_REQUESTS} of the same requests come all at once (offline). An INVARIANT ` +
      'pass takes as many times as long as a FAST one as its row says.';
  try {
    if (await bars(s, current)) await map(s, current);
  } catch (error) {
    if (current()) out.verdict.replaceChildren(element('span', {class: 'bad'}, error.message));
  }
}

// ---- the bars ----
// Returns false if the settings have changed meanwhile.
async function bars(s, current) {
  const runs = MECHANISMS.map(() => []), most = [];
  const how = (i) => ({...s, preset: MECHANISMS[i].preset, requests: REQUESTS, running: RUNNING});
  for (const seed of SEEDS) {
    for (const i of MECHANISMS.keys()) {
      const run = await page.programs.call('simulate', {...how(i), seed});
      // What the device can serve: the same requests, all at once.
      most[i] = most[i] || (await page.programs.call('simulate', {...how(i), qps: 0, seed})).tokens_per_s;
      if (!current()) return false;
      runs[i].push(Object.assign(run, {overloaded: s.qps * TOKENS > most[i]}));
    }
    draw_bars(runs);
  }
  report(runs, s);
  return true;
}

function spread(runs, key) {
  const values = runs.map((r) => r[key]);
  return {
    mean: values.reduce((a, b) => a + b) / values.length,
    least: Math.min(...values),
    most: Math.max(...values),
  };
}

// More requests come than are served, so that latencies grow with their number.
const overloaded = (runs) => runs[0].overloaded;

function draw_bars(runs) {
  const largest = FIGURES.map((f) => Math.max(...runs.map((r) => spread(r, f.key).most)));
  const groups = MECHANISMS.map((m, i) => {
    const head = element('th', {scope: 'rowgroup', colspan: FIGURES.length}, m.name, element('small', {}, m.what));
    if (overloaded(runs[i])) head.append(element('small', {class: 'bad'}, '▲ overloaded'));
    const cells = FIGURES.map((f, k) => {
      const {mean, least, most} = spread(runs[i], f.key), percent = (x) => `${100 * x / largest[k]}%`;
      const bar = element('div', {class: `bar ${m.preset}`}), line = element('div', {class: 'whisker'});
      bar.style.width = percent(mean);
      line.style.left = percent(least);
      line.style.width = percent(most - least);
      return element(
          'td', {}, f.show(mean), element('small', {}, `${f.show(least).replace(' s', '')} to ${f.show(most)}`),
          element('div', {class: 'track', 'aria-hidden': 'true'}, bar, line));
    });
    return element('tbody', {}, element('tr', {}, head), element('tr', {}, ...cells));
  });
  const heads = FIGURES.map((f) => element('th', {scope: 'col'}, f.name));
  out.table.replaceChildren(element('thead', {}, element('tr', {}, ...heads)), ...groups);
}

// How many times as long the latency of a mechanism is as where answers drift. The same seeds have the same arrivals.
function report(runs, s) {
  const times = MECHANISMS.slice(1).map((m, i) => {
    const ratios = runs[i + 1].map((r, k) => ({ratio: r.p50 / runs[0][k].p50}));
    return {name: m.name, over: overloaded(runs[i + 1]), ...spread(ratios, 'ratio')};
  });
  const words = times.map((t) => {
    const range = [...new Set([t.least.toFixed(1), t.most.toFixed(1)])].join(' to ');
    return `${range} times as long under ${t.name}${t.over ? ' (overloaded)' : ''}`;
  });
  out.verdict.textContent = overloaded(runs[0]) ?
      'Overloaded even where answers drift: latencies grow as long as this load lasts. Lower the load.' :
      'P50 is the latency that half of the answers exceed. Compared with answers that drift, it is ' +
          `${words.slice(0, -1).join(', ')} and ${words.at(-1)}.`;
  out.slower = runs[0][0].slower;
}

// ---- the map ----
async function map(s, current) {
  const name = `${s.calibration} ${s.window} ${s.group}`;
  const rows = maps.get(name) || SLOWER.map(() => []);
  draw_map(rows, s);
  for (const [y, slowdown] of SLOWER.entries()) {
    const how = {...s, qps: 0, slowdown, requests: MAP_REQUESTS, running: RUNNING};
    let invariant = null;
    for (let x = rows[y].length; x < SHARES.length; x++) {
      // All passes are INVARIANT, whatever the share.
      invariant = invariant || await page.programs.call('simulate', {...how, preset: 'invariant', share: 1});
      if (!current()) return;
      const dvr = await page.programs.call('simulate', {...how, preset: 'dvr', share: SHARES[x] / 100});
      if (!current()) return;
      rows[y].push({dvr: dvr.tokens_per_s, invariant: invariant.tokens_per_s});
    }
    draw_map(rows, s);
  }
  maps.set(name, rows);
  say_map(rows, s);
}

function winner({dvr, invariant}) {
  if (Math.abs(dvr - invariant) <= TIE * Math.max(dvr, invariant)) return '=';
  return dvr > invariant ? 'V' : 'I';
}

const nearest = (values, to) =>
    values.reduce((best, v, i) => Math.abs(v - to) < Math.abs(values[best] - to) ? i : best, 0);

function draw_map(rows, s) {
  out.drawn = [rows, s];
  const narrow = out.map.clientWidth < 450;  // its text would be too small on a telephone
  const W = narrow ? 30 : 50, H = 27, LEFT = 70, TOP = 6, width = LEFT + W * SHARES.length + 6,
        bottom = TOP + H * SLOWER.length;
  const drawing = svg('svg', {viewBox: `0 0 ${width + 14} ${bottom + 48}`, role: 'img', 'aria-label': map_words(rows)});
  const top_of = (y) => bottom - H * (y + 1);
  for (const [y, cells] of rows.entries()) {
    const slower = `${SLOWER[y]}×`;
    drawing.append(svg('text', {x: LEFT - 8, y: top_of(y) + 19, class: 'axis', 'text-anchor': 'end'}, slower));
    for (const [x, cell] of cells.entries()) {
      const letter = winner(cell), at = {x: LEFT + W * x, y: top_of(y)};
      const title = `${SHARES[x]}% deterministic, INVARIANT passes ${SLOWER[y]} times as long: verification ` +
          `${cell.dvr.toFixed(0)} tokens per second, INVARIANT passes ${cell.invariant.toFixed(0)}`;
      drawing.append(
          svg('g', {class: `cell ${CLASSES[letter]}`}, svg('title', {}, title),
              svg('rect', {...at, width: W - 2, height: H - 2, rx: 3}),
              svg('text', {x: at.x + W / 2 - 1, y: at.y + 19, 'text-anchor': 'middle'}, letter)));
    }
  }
  for (const [x, share] of SHARES.entries()) {
    if (narrow && x % 2 === 0) continue;
    const at = {x: LEFT + W * (x + 0.5), y: bottom + 18, class: 'axis', 'text-anchor': 'middle'};
    drawing.append(svg('text', at, `${share}%`));
  }
  const middle = {x: LEFT + W * SHARES.length / 2, y: bottom + 42, class: 'axis', 'text-anchor': 'middle'};
  drawing.append(svg('text', middle, 'deterministic requests'));
  const up = {transform: `translate(15 ${(TOP + bottom) / 2}) rotate(-90)`, class: 'axis', 'text-anchor': 'middle'};
  drawing.append(svg('text', up, 'INVARIANT pass ÷ FAST pass'));
  const here = {x: LEFT + W * nearest(SHARES, 100 * s.share) - 2, y: top_of(nearest(SLOWER, out.slower)) - 2};
  drawing.append(svg('rect', {...here, width: W + 2, height: H + 2, rx: 5, class: 'here'}));
  out.map.replaceChildren(drawing);
}

// From which slowness on verification returns more tokens, for a share.
function border(rows, x) {
  return SLOWER.find((slower, y) => rows[y][x] && winner(rows[y][x]) === 'V');
}

function map_words(rows) {
  const words = SHARES.map((share, x) => {
    const from = border(rows, x);
    return `${share}%: ${from ? `from ${from} times on` : 'nowhere'}`;
  });
  return `A map of who returns most tokens per second. Verification does, for each share of deterministic requests: ${
      words.join('; ')}.`;
}

function say_map(rows, s) {
  const x = nearest(SHARES, 100 * s.share), from = border(rows, x);
  out.at.textContent = `At ${SHARES[x]}% deterministic, verification returns most ` +
      `${from ? `from ${from}× on` : 'nowhere on this map'}. Here, an INVARIANT pass of ${RUNNING} decoding ` +
      `requests takes ${out.slower.toFixed(2)}× as long as a FAST one.`;
}
