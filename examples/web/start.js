// start.js: the first screen. One prompt, one slider, one switch: its text and the bits of its log-probabilities drift
// with the other requests in the batch, until it is deterministic.
import {element, FIRST, PROMPTS, say, slider} from './dom.js';
import {Run, text_of} from './run.js';

const TOKENS = 48;
let page, out = {}, alone = null, running = 0, stopped = false;

export function open(section, of_page) {
  page = of_page;
  const others = slider('Other requests in the batch', {min: 0, max: 15, value: 7}, () => {}, () => serve());
  const mark = element('input', {type: 'checkbox', id: 'deterministic', onchange: () => serve()});
  const prompt = element(
      'select', {
        'aria-label': 'Prompt',
        onchange: () => {
          alone = null;
          serve();
        }
      },
      ...PROMPTS.map((p) => element('option', {selected: p === FIRST}, p)));
  out = {
    section,
    others,
    mark,
    prompt,
    verdict: say('…'),
    alone: element('p', {class: 'text', id: 'start-alone'}),
    among: element('p', {class: 'text', id: 'start-among'}),
    alone_bits: element('p', {class: 'bits'}),
    among_bits: element('p', {class: 'bits'}),
    among_head: element('h3', {}, ''),
  };
  out.verdict.id = 'start-verdict';
  out.verdict.setAttribute('aria-live', 'polite');
  section.append(
      element('h2', {}, 'The same prompt, and always the likeliest token. Is the answer the same?'),
      element(
          'div', {class: 'controls'}, element('label', {}, 'Prompt ', prompt), others,
          element('label', {class: 'switch'}, mark, 'deterministic')),
      out.verdict,
      element(
          'div', {class: 'panes'},
          element(
              'div', {class: 'pane'}, element('h3', {}, 'Alone'), out.alone,
              element('h3', {}, 'Bits of the first log-probabilities'), out.alone_bits),
          element(
              'div', {class: 'pane'}, out.among_head, out.among,
              element('h3', {}, 'Bits of the first log-probabilities'), out.among_bits)));
  page.ready.then(serve, () => {});
}

// Another view may have stopped what was served here.
export function show() {
  if (stopped) serve();
}

// Marks the request as deterministic.
export function mark() {
  if (!out.mark.checked) out.mark.click();
}

// Serves the prompt among the others. The first request is the prompt's; a new one joins every second pass. Returns
// nothing if it was stopped.
async function run_with(others, deterministic, show) {
  const mine = out.prompt.value, rest = PROMPTS.filter((p) => p !== mine).slice(0, others);
  const requests = [mine, ...rest].map((text, i) => ({text, tokens: TOKENS, deterministic: deterministic && i === 0}));
  const run = new Run(requests);
  const how = {preset: deterministic ? 'dvr' : 'nondeterministic', window: 8, group: 4, wait: true, requests};
  const result = await page.engine.call('serve', how, (part) => {
    if (run.add(part)) show?.(run);
  });
  return result.stopped ? null : run;
}

async function serve() {
  const mine = ++running, deterministic = out.mark.checked, others = out.others.value();
  const current = () => mine === running;
  page.engine.stop();
  stopped = false;
  out.among_head.textContent =
      `Among ${others} other request${others === 1 ? '' : 's'}` + (deterministic ? ', deterministic' : '');
  out.verdict.textContent = 'Serving…';
  out.among.replaceChildren();  // it was of other settings
  out.among_bits.replaceChildren();
  try {
    if (!alone || alone.deterministic !== deterministic) {
      const run = await run_with(0, deterministic, (r) => current() && draw(out.alone, out.alone_bits, r));
      if (!current() || halted(run)) return;
      alone = {deterministic, run};
    }
    draw(out.alone, out.alone_bits, alone.run);
    const run =
        await run_with(others, deterministic, (r) => current() && draw(out.among, out.among_bits, r, alone.run));
    if (!current() || halted(run)) return;
    draw(out.among, out.among_bits, run, alone.run);
    report(run, deterministic, others);
  } catch (error) {
    if (!current()) return;
    out.verdict.textContent = 'Nothing was served.';
    page.fail(error);
  }
}

// Begins again if the run was stopped, at once or when the view is shown.
function halted(run) {
  stopped = !run;
  if (stopped && !out.section.hidden) serve();
  return stopped;
}

// The tokens of the first lane, and what differs from another run.
function draw(text, bits, run, reference) {
  const items = run.lanes[0].items.filter((i) => i.state !== 'struck' || i.rollback);
  const expected = reference?.answer(0);
  let apart = false;
  text.replaceChildren(element('span', {class: 'prompt'}, run.requests[0].text));
  for (const item of items) {
    const first =
        !apart && expected && item.settled && item.state !== 'struck' && expected[item.index]?.token !== item.token;
    apart = apart || first;
    const look = [item.state, item.state === 'committed' ? 'marked' : '', apart ? 'differs' : '', first ? 'first' : ''];
    if (item.state === 'struck') {
      text.append(element(
          'button', {
            class: 'x',
            title: 'The replay pass found another token. Why?',
            'aria-label': 'Rolled back here: why?',
            onclick: () => page.explain(run, item.rollback),
          },
          'X'));
    }
    text.append(element('span', {class: look.join(' ').trim()}, text_of([item.token])));
  }
  bits.replaceChildren();
  for (const item of run.answer(0).slice(0, 24)) {
    const same = !expected || expected[item.index]?.bits === item.bits;
    bits.append(element('span', {class: same ? '' : 'differs'}, item.bits), ' ');
  }
}

function report(run, deterministic, others) {
  const own = run.answer(0), expected = alone.run.answer(0);
  const bits = own.filter((i, k) => i.bits !== expected[k]?.bits).length;
  const token = own.findIndex((i, k) => i.token !== expected[k]?.token);
  const rollbacks = run.rollbacks.filter((r) => r.lane === 0).length;
  const what = [];
  if (!bits && token < 0) {
    what.push(element('span', {class: 'good'}, 'The same, to the bit. '));
    if (others === 0)
      what.push('Now let others share the batch: move the slider.');
    else if (!deterministic)
      what.push('This batch changed nothing. Try another number of requests.');
    else if (rollbacks) {
      what.push(
          `A candidate differed ${rollbacks === 1 ? 'once' : `${rollbacks} times`}, and a replay pass put the ` +
          'canonical token in its place. Click an X to see why.');
    } else
      what.push('Each token was checked by a replay pass before it was returned. Other batches show a rollback, X.');
  } else {
    what.push(
        element(
            'span', {class: 'bad'},
            token < 0 ? 'The same words, and other bits. ' : `From token ${token + 1} on another text. `),
        `${bits} of ${own.length} log-probabilities have other bits, because other requests shared the passes. `,
        'Now switch on “deterministic”.');
  }
  out.verdict.replaceChildren(...what);
}
