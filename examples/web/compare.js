// compare.js: one prompt is answered alone and among others, first by ordinary requests and then by deterministic ones.
// Of each pair the view says where the texts part, and how many log-probabilities have other bits.
import {choice, element, FIRST, PROMPTS, say, slider} from './dom.js';
import {name_of, Run, text_of} from './run.js';

const TOKENS = 48, LONGEST = 200;
let page, form = {}, pairs = [], shown = false, running = 0;

export function open(section, of_page) {
  page = of_page;
  form = {
    prompt: element('input', {type: 'text', maxlength: LONGEST, list: 'compare-prompts', value: FIRST}),
    others: slider('Other requests in the batch', {min: 1, max: 15, value: 7}),
    temperature: choice(
        'Each token', [['0', 'the likeliest'], ['0.8', 'temperature 0.8']], '0',
        () => form.seed.disabled = form.temperature.value() === '0'),
    seed: element('input', {type: 'number', min: 1, max: 999999, value: 42, disabled: true, 'aria-label': 'Seed'}),
  };
  pairs = [new Pair('Ordinary', false), new Pair('Deterministic', true)];
  section.append(
      element('h2', {}, 'One prompt, four answers: alone and among others'),
      element(
          'form', {
            class: 'compare',
            onsubmit: (event) => {
              event.preventDefault();
              run();
            },
          },
          element(
              'label', {class: 'wide'}, `Prompt, yours or one of the list, at most ${LONGEST} characters `, form.prompt,
              element('datalist', {id: 'compare-prompts'}, ...PROMPTS.map((p) => element('option', {value: p})))),
          form.others, form.temperature, element('label', {}, 'Seed of the draws ', form.seed),
          element('button', {class: 'primary', id: 'compare-run'}, 'Compare')),
      element('div', {class: 'panes'}, ...pairs.map((p) => p.pane)));
}

// The first look shows an example.
export function show() {
  if (shown) return;
  shown = true;
  page.ready.then(run, () => {});
}

// A prompt's answer alone and its answer among others.
class Pair {
  constructor(name, deterministic) {
    this.deterministic = deterministic;
    this.verdict = element('div', {class: 'pair-verdict', 'aria-live': 'polite', id: `compare-${name.toLowerCase()}`});
    this.among_head = element('h3', {}, 'Among others');
    this.texts = [element('p', {class: 'text'}), element('p', {class: 'text'})];
    this.pane = element(
        'div', {class: 'pane'}, element('h3', {class: 'large'}, name), this.verdict, element('h3', {}, 'Alone'),
        this.texts[0], this.among_head, this.texts[1]);
  }

  // Returns whether both runs came to their end.
  async serve(asked, current) {
    const runs = [];
    for (const others of [0, asked.others.length]) {
      const requests = [asked.prompt, ...asked.others.slice(0, others)].map((text, i) => ({
                                                                              text,
                                                                              tokens: TOKENS,
                                                                              temperature: asked.temperature,
                                                                              seed: asked.seed + i,
                                                                              deterministic: this.deterministic && !i,
                                                                            }));
      const run = new Run(requests), at = runs.push(run) - 1;
      const how = {preset: this.deterministic ? 'dvr' : 'nondeterministic', window: 8, group: 4, wait: true, requests};
      const {stopped} = await page.engine.call('serve', how, (part) => {
        if (run.add(part) && current()) this.draw(at, runs);
      });
      if (!current()) return false;
      if (stopped) throw new Error('This run was stopped by another view: press Compare again.');
    }
    this.runs = runs;
    for (const at of [0, 1]) this.draw(at, runs);
    this.report();
    return true;
  }

  draw(at, runs) {
    const first = runs.length > 1 ? difference(runs[0].answer(0), runs[1].answer(0)).token : -1;
    const items = runs[at].lanes[0].items.filter((i) => i.state !== 'struck').sort((a, b) => a.index - b.index);
    this.texts[at].replaceChildren(element('span', {class: 'prompt'}, runs[at].requests[0].text));
    // While the second answer grows, the first one is longer: that is no difference.
    const apart = first >= 0 && (runs[1].lanes[0].finished || first < runs[1].answer(0).length);
    for (const item of items) {
      const look = [item.state, item.state === 'committed' ? 'marked' : ''];
      if (apart && item.index >= first) look.push('differs');
      if (apart && item.index === first) look.push('first');
      if (item.rollback) this.texts[at].append(rolled_back(runs[at], item.rollback));
      this.texts[at].append(element('span', {class: look.filter(Boolean).join(' ')}, text_of([item.token])));
    }
  }

  report() {
    const [alone, among] = this.runs.map((r) => r.answer(0));
    const {token, bit, bits, of} = difference(alone, among);
    const rollbacks = this.runs[1].rollbacks.filter((r) => r.lane === 0).length;
    let head = 'The same to the bit', rest = `All ${of} tokens and their log-probabilities are equal.`;
    if (bit >= 0) {
      head = token < 0 ? 'The same words, with other bits' : `From token ${token + 1} on another text`;
      rest = `${bits} of ${of} log-probabilities ${bits === 1 ? 'has' : 'have'} other bits, from token ${bit + 1} on.`;
    }
    if (token >= 0) rest += ` Alone comes ${quote(alone[token])}, among others ${quote(among[token])}.`;
    if (rollbacks) {
      rest +=
          ` A fast pass chose another token ${rollbacks === 1 ? 'once' : `${rollbacks} times`}, and a replay pass ` +
          'put the canonical one in its place (X).';
    }
    const sign = element('span', {class: 'sign', 'aria-hidden': 'true'}, bit < 0 ? '=' : '≠');
    this.verdict.replaceChildren(
        element('p', {class: bit < 0 ? 'good' : 'bad'}, sign, ` ${head}`), element('p', {}, rest));
  }
}

const quote = (item) => item ? `“${text_of([item.token]).trim() || name_of(item.token)}”` : 'the end';

function rolled_back(run, rollback) {
  const why = {title: 'The replay pass found another token. Why?', 'aria-label': 'Rolled back here: why?'};
  return element('button', {class: 'x', onclick: () => page.explain(run, rollback), ...why}, 'X');
}

// Where two answers differ: the first token and the first log-probability (from 0; -1: none), and how many
// log-probabilities of how many.
function difference(a, b) {
  const of = Math.max(a.length, b.length), found = {token: -1, bit: -1, bits: 0, of};
  for (let i = 0; i < of; i++) {
    if (found.token < 0 && a[i]?.token !== b[i]?.token) found.token = i;
    if (a[i]?.bits === b[i]?.bits && a[i]?.token === b[i]?.token) continue;
    if (!found.bits++) found.bit = i;
  }
  return found;
}

async function run() {
  const mine = ++running, current = () => mine === running;
  const prompt = form.prompt.value, others = form.others.value();
  page.engine.stop();
  for (const pair of pairs) {
    pair.among_head.textContent = `Among ${others} other${others === 1 ? '' : 's'}`;
    pair.verdict.replaceChildren(say('Waiting…'));
    for (const text of pair.texts) text.replaceChildren();
  }
  if (!prompt.trim()) {
    pairs[0].verdict.replaceChildren(say('Write a prompt first.'));
    pairs[1].verdict.replaceChildren();
    return;
  }
  const asked = {
    prompt,
    others: PROMPTS.filter((p) => p !== prompt).slice(0, others),
    temperature: Number(form.temperature.value()),
    seed: Math.min(999999, Math.max(1, Math.round(Number(form.seed.value)) || 42)),
  };
  form.seed.value = asked.seed;
  for (const pair of pairs) {
    pair.verdict.replaceChildren(say('Serving…'));
    try {
      if (!await pair.serve(asked, current)) return;
    } catch (error) {
      if (!current()) return;
      for (const p of pairs.slice(pairs.indexOf(pair))) p.verdict.replaceChildren();
      pair.verdict.append(element('p', {class: 'bad'}, error.message));
      return;
    }
  }
}
