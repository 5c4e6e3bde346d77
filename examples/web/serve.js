// serve.js: several requests are served side by side. Candidates are underlined, what is committed is plain, and what
// was rolled back stays, struck out. Below, a line of passes in colours. The run is recorded, so it can go back.
import {choice, element, legend, PROMPTS, say, slider, svg} from './dom.js';
import {KINDS, Run, text_of} from './run.js';

const TOKENS = 64, WIDE = 14, HIGH = 16, TOP = 22, LEFT = 34, PASSES_PER_S = 8;
const COLOURS = {
  fast: 'var(--fast)',
  invariant: 'var(--invariant)',
  prompt: 'var(--prompt)',
  replay: 'var(--replay)',
  rollback: 'var(--rollback)',
};
// What the words on this view mean.
const WORDS = [
  ['D1, o2', 'Request 1 is deterministic (D): its answer must not depend on the others. Request 2 is ordinary (o).'],
  ['fast pass', 'It cuts its sums as suits its number of rows, so the last bits depend on which requests share it.'],
  ['candidate', 'A token that a deterministic request got and that nobody sees yet, because it is not verified.'],
  [
    'INVARIANT pass', 'It takes each sum in one order, whatever shares it. Prompts of deterministic requests run in it.'
  ],
  ['replay pass', 'It computes candidates again in an order that no other request changes, and so verifies them.'],
  ['W', 'A window is what a replay pass verifies of one request: at most W tokens.'],
  ['G', 'A replay pass verifies the windows of at most G requests at once.'],
  ['preset dvr', 'Decode in fast passes, verify in replay passes, roll back what differs.'],
  ['preset best', 'Before each pass it takes what the measured times say is cheaper: dvr, or an INVARIANT pass.'],
  ['preset invariant', 'All passes are INVARIANT, so there is nothing to verify.'],
  ['preset paper', 'As in the LLM-42 paper: each replay pass has W x G rows, and prompts run in passes of their own.'],
];
const KEYS =
    [['Space', 'play or pause'], ['Left, Right', 'a pass back or on'], ['n', 'the next rollback'], ['?', 'this list']];
const EXCEPTION = ' (the exception: an INVARIANT pass drew the candidate, but it read KV that fast passes had written)';
let page, section, out, controls, run = null, at = 0, playing = false, timer = 0, serving = 0, wanted = null, drawn = 0;

export function open(of_section, of_page) {
  page = of_page;
  section = of_section;
  const again = () => start();
  controls = {
    preset: choice(
        'Preset',
        [
          ['dvr', 'dvr'],
          ['best', 'best (by times, so runs differ)'],
          ['invariant', 'invariant'],
          ['paper', 'paper'],
        ],
        'dvr', again),
    requests: slider('Requests', {min: 1, max: 16, value: 10}, undefined, again),
    share: slider('Deterministic', {min: 0, max: 100, step: 10, value: 50, show: (x) => `${x}%`}, undefined, again),
    window: slider('W, tokens a window', {min: 2, max: 32, value: 8}, undefined, again),
    group: slider('G, windows a pass', {min: 1, max: 16, value: 4}, undefined, again),
  };
  const button = (id, text, press, title) => element('button', {id, title, onclick: press}, text);
  out = {
    play: button('serve-play', 'Play', toggle, 'Play or pause (Space)'),
    now: say('…'),
    counts: element('p', {class: 'faint'}),
    lanes: element('div', {class: 'lanes'}),
    line: element('div', {class: 'timeline', tabindex: 0, role: 'group', 'aria-label': 'Passes, from left to right'}),
  };
  out.keys = element(
      'div', {class: 'row', id: 'serve-keys', hidden: true, 'aria-live': 'polite'},
      ...KEYS.map(([key, what]) => element('span', {}, element('kbd', {}, key), ` ${what}`)));
  out.now.id = 'serve-now';
  out.now.setAttribute('aria-live', 'polite');
  section.append(
      element('h2', {}, 'Decode fast, verify in a fixed order, roll back what differs'),
      element('div', {class: 'controls'}, ...Object.values(controls)),
      element(
          'div', {class: 'row'}, out.play, button('serve-back', '← Back', () => go(at - 1), 'One pass back (Left)'),
          button('serve-step', 'Step →', () => go(at + 1), 'One pass on (Right)'),
          button('serve-next', 'Next rollback', next_rollback, 'To the next rollback (n)'),
          button('serve-first', 'From the start', () => go(0)),
          button('serve-help', 'Keys', list_keys, 'The keys (?)')),
      out.keys, out.now, out.lanes, legend([
        [COLOURS.fast, 'fast pass (.)'], [COLOURS.invariant, 'INVARIANT pass (I)'],
        [COLOURS.prompt, 'prompts, paper (P)'], [COLOURS.replay, 'replay pass (R)'],
        [COLOURS.rollback, 'replay pass with a rollback (X)']
      ]),
      out.line, out.counts,
      element(
          'div', {class: 'row faint'}, element('span', {class: 'candidate'}, 'candidate'),
          element('span', {class: 'committed marked'}, 'committed'), element('span', {class: 'struck'}, 'rolled back'),
          element('span', {class: 'verdict'}, 'the replay pass’s own'), element('span', {}, 'ordinary request')),
      element(
          'details', {id: 'serve-words'}, element('summary', {}, 'What the words mean'),
          element('dl', {}, ...WORDS.flatMap(([word, text]) => [element('dt', {}, word), element('dd', {}, text)]))));
  document.addEventListener('keydown', (event) => {
    const key = {
      ' ': toggle,
      ArrowLeft: () => go(at - 1),
      ArrowRight: () => go(at + 1),
      n: next_rollback,
      '?': list_keys
    }[event.key];
    // The space bar presses a button that has the focus, and Left and Right move between tabs.
    const target = /** @type {Element} */ (event.target);
    const button = event.key !== ' ' && section.contains(target) && target.matches('button');
    const free = target === document.body || out.line.contains(target) || button ||
        ((event.key === 'n' || event.key === '?') && target.matches('[role=tab]'));
    if (!key || section.hidden || !free || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    key();
  });
}

function list_keys() {
  out.keys.hidden = !out.keys.hidden;
}

export function show() {
  if (!run || run.stopped) page.ready.then(() => run && !run.stopped || start(), () => {});
}

async function start() {
  const mine = ++serving, value = (name) => controls[name].value();
  const share = value('share') / 100, preset = value('preset'), window = value('window'), group = value('group');
  const requests =
      PROMPTS.slice(0, value('requests')).map((text, i) => ({
                                                text,
                                                tokens: TOKENS,
                                                // As many as the share says, evenly spread, the first one among them.
                                                deterministic: Math.ceil((i + 1) * share) > Math.ceil(i * share),
                                              }));
  page.engine.stop();
  run = new Run(requests, {preset, window, group});
  at = 0, drawn = 0, wanted = null;
  const own = run;
  play(true);
  try {
    const {stopped} =
        await page.engine.call('serve', {preset, window, group, wait: preset === 'dvr', requests}, (part) => {
          own.add(part);
          if (mine === serving && wanted === 'rollback') next_rollback();
        });
    own.ended = true;
    own.stopped = stopped;  // by another view: what was shown stays until this one is shown again
    if (mine !== serving) return;
    if (stopped && !section.hidden)
      start();
    else if (wanted)
      next_rollback();  // to say that there is none
    else
      draw();
  } catch (error) {
    own.ended = true;
    if (mine === serving) page.fail(error);
  }
}

function play(on) {
  playing = on;
  out.play.textContent = on ? 'Pause' : 'Play';
  out.now.setAttribute('aria-live', on ? 'off' : 'polite');  // eight passes a second are too many to be read out
  clearInterval(timer);
  if (!on) return;
  timer = setInterval(() => {
    if (run.passes > at)
      at++;
    else if (run.ended)
      play(false);
    draw();
  }, 1000 / PASSES_PER_S);
}

function toggle() {
  if (!run) return;
  wanted = null;
  if (!playing && run.ended && at === run.passes) at = 0;
  play(!playing);
}

function go(to) {
  if (!run) return;
  play(false);
  wanted = null;
  at = Math.max(0, Math.min(to, run.passes));
  draw();
}

// Where the next rollback is not known yet, the run goes on until it is.
function next_rollback() {
  if (!run) return;
  const next = run.rollbacks.find((r) => r.pass > at);
  play(false);
  wanted = next || run.ended ? null : 'rollback';
  if (next)
    at = next.pass;
  else if (run.ended)
    at = run.passes;
  draw(!next && run.ended ? '. There is no further rollback in this run.' : '');
}

function draw(more = '') {
  if (!run) return;
  draw_lanes();
  draw_line();
  const frame = run.frames[at - 1];
  if (!frame)
    out.now.textContent = wanted ? 'Looking for a rollback…' : 'Nothing has run yet.';
  else {
    const rollbacks = run.rollbacks.filter((r) => r.pass === at);
    const windows = frame.windows ? `, ${frame.windows} window${frame.windows === 1 ? '' : 's'} verified` : '';
    out.now.replaceChildren(
        element('b', {}, `Pass ${at}`), `: ${KINDS[frame.kind].name}, ${frame.rows} row${frame.rows === 1 ? '' : 's'}`,
        windows,
        ...rollbacks.flatMap(
            (r) => ['. ', why_button(r, `${name(r.lane)} rolled back: why?`), run.drew_invariant(r) ? EXCEPTION : '']),
        more);
  }
  const seen = run.frames.slice(0, at), sum = (kind) => seen.filter((f) => f.kind === kind).length;
  const rolled = run.rollbacks.filter((r) => r.pass <= at);
  out.counts.textContent = [
    many(sum('fast'), 'fast pass', 'es'),
    many(sum('replay') + sum('rollback'), 'replay pass', 'es'),
    many(rolled.length, 'rollback', 's'),
    many(rolled.reduce((n, r) => n + r.n, 0), 'candidate', 's') + ' dropped',
  ].join(', ');
}

function many(n, what, plural) {
  return `${n} ${what}${n === 1 ? '' : plural}`;
}

function name(k) {
  return `${run.lanes[k].deterministic ? 'D' : 'o'}${k + 1}`;
}

function why_button(rollback, text) {
  return element(
      'button', {class: 'x', 'aria-label': 'Rolled back here: why?', onclick: () => page.explain(run, rollback)}, text);
}

// Elements stay while the run goes on, so that a button can be pressed and keep the focus.
function draw_lanes() {
  const born = run.lanes.filter((lane) => lane.born && lane.born <= Math.max(at, 1));
  for (const lane of born) draw_lane(lane, run.lanes.indexOf(lane));
  if (out.lanes.children.length !== born.length || out.lanes.firstChild !== born[0]?.drawn.whole)
    out.lanes.replaceChildren(...born.map((lane) => lane.drawn.whole));
}

function draw_lane(lane, k) {
  if (!lane.drawn) {
    const words = element('div', {class: 'words'}), done = element('span');
    const kind = lane.deterministic ? 'deterministic' : 'ordinary';
    const whole = element(
        'div', {class: 'lane'}, element('div', {class: 'who'}, element('b', {}, name(k)), done, element('br'), kind),
        words);
    words.append(element('span', {class: 'prompt'}, lane.text));
    lane.drawn = {whole, words, done, items: []};
  }
  const {words, done, items} = lane.drawn;
  // Items are in the order in which they were born.
  const seen = lane.items.filter((i) => i.born <= at);
  for (const {span, button} of items.splice(seen.length)) span.remove(), button?.remove();
  for (const [i, item] of seen.entries()) {
    const look = Run.look(item, at);
    if (!items[i]) words.append((items[i] = {span: element('span', {}, text_of([item.token]))}).span);
    const shown = items[i];
    shown.span.className = look === 'committed' ? 'committed marked' : look;
    const struck = look === 'struck' && item.rollback;
    if (struck && !shown.button) shown.span.before(shown.button = why_button(item.rollback, 'X'));
    if (shown.button) shown.button.hidden = !struck;
  }
  done.textContent = lane.finished && lane.finished <= at ? ' done' : '';
}

// A column for each pass: its letter, and below it what it did for each request.
function draw_line() {
  if (drawn > run.passes || drawn === 0) {
    out.line.replaceChildren(
        svg('svg', {role: 'img', height: TOP + HIGH * run.lanes.length + 4}, svg('title'), svg('g'),
            svg('rect', {class: 'now', fill: 'none', stroke: 'var(--text)', 'stroke-width': 2, y: 1})));
    drawn = 0;
  }
  const [picture] = out.line.children, [title, columns, mark] = picture.children;
  for (; drawn < run.passes; drawn++) columns.append(column(drawn + 1));
  const width = LEFT + WIDE * (run.passes + 1);
  picture.setAttribute('width', width);
  picture.style.maxWidth = 'none';
  title.textContent = `${run.passes} passes; at pass ${at}`;
  mark.setAttribute('x', LEFT + WIDE * (at - 1));
  mark.setAttribute('width', at ? WIDE : 0);
  mark.setAttribute('height', TOP + HIGH * run.lanes.length);
  const x = LEFT + WIDE * at;
  if (x < out.line.scrollLeft || x > out.line.scrollLeft + out.line.clientWidth - 2 * WIDE) {
    out.line.scrollLeft = x - out.line.clientWidth / 2;
  }
}

function column(pass) {
  const frame = run.frames[pass - 1], x = LEFT + WIDE * (pass - 1), group = svg('g', {onclick: () => go(pass)});
  group.style.cursor = 'pointer';
  group.append(svg('rect', {x, y: 2, width: WIDE - 1, height: TOP + HIGH * run.lanes.length - 2, fill: 'transparent'}));
  group.append(svg('rect', {x, y: 2, width: WIDE - 1, height: 18, rx: 2, fill: COLOURS[frame.kind]}));
  const letter = svg('text', {x: x + WIDE / 2 - 0.5, y: 15, 'text-anchor': 'middle', 'font-size': 12});
  letter.style.fill = '#000';
  letter.textContent = KINDS[frame.kind].letter;
  group.append(letter);
  for (const [k, lane] of run.lanes.entries()) {
    const y = TOP + HIGH * k + HIGH / 2, here = {cx: x + WIDE / 2 - 0.5, cy: y};
    const window = lane.windows.find((w) => w.pass === pass);
    if (window) {
      const fill = window.rollback ? COLOURS.rollback : COLOURS.replay;
      group.append(svg('rect', {x: x + 1, y: y - 6, width: WIDE - 3, height: 12, rx: 2, fill}));
    } else if (lane.items.some((i) => i.born === pass)) {
      const candidate = lane.items.some((i) => i.born === pass && i.settled !== pass);
      group.append(
          svg('circle', {...here, r: candidate ? 4 : 2.5, fill: candidate ? COLOURS.fast : 'var(--invariant)'}));
    }
  }
  return group;
}
