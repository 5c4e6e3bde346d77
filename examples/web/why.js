// why.js: why a rollback happened. The logits of the two likeliest tokens by both passes, then the first sum that
// differed, and a toy of three numbers. The sum is what build/diff --explain prints: the same program, compiled for the
// page, runs both passes again.
import {element, say, svg} from './dom.js';
import {name_of, text_of} from './run.js';

let page, out, shown = 0;

export function open(section, of_page) {
  page = of_page;
  out = {
    intro: element(
        'div', {},
        say('Go to a rollback first: click an X on ', button('Start, marked deterministic', () => page.show_marked()),
            ' or ', button('Serve', () => page.select('serve')), '. Or begin with three numbers.')),
    logits: element('div', {class: 'panes'}),
    sum: element('div', {'aria-live': 'polite'}),
  };
  section.append(element('h2', {}, 'Why did it choose another token?'), out.intro, out.logits, out.sum, toy());
}

function button(text, press) {
  return element('button', {onclick: press}, text);
}

// A pass by its number, as the view Serve counts them.
function name_of_pass(run, pass) {
  const frame = run.frames[pass - 1];
  const what = {fast: 'fast', invariant: 'INVARIANT', prompt: 'prompts'}[frame.kind] ?? 'replay';
  return `Pass ${pass} (${what}, ${frame.rows} row${frame.rows === 1 ? '' : 's'})`;
}

export async function explain(run, rollback) {
  const mine = ++shown, lane = run.lanes[rollback.lane], wrong = rollback.tokens[0], right = rollback.canonical;
  const before = lane.items.filter((i) => i.index < rollback.position && i.state !== 'struck').slice(-12);
  out.intro.replaceChildren(
      say('… ', element('span', {class: 'prompt'}, text_of(before.map((i) => i.token))),
          element('span', {class: 'struck'}, text_of([wrong])), element('span', {class: 'verdict'}, text_of([right])),
          ` (request ${rollback.lane + 1}, pass ${rollback.pass})`));
  const drew = run.drawn_in(rollback);
  const scale = Math.max(...[...rollback.drawn, ...rollback.replayed].map((l) => Math.abs(l[1])));
  out.logits.replaceChildren(
      bars(
          `${name_of_pass(run, drew)} drew the candidate`, rollback.drawn, scale, wrong, right,
          lane.temperature && wrong),
      bars(
          `${name_of_pass(run, rollback.pass)} put another in its place`, rollback.replayed, scale, wrong, right,
          lane.temperature && right));
  if (run.drew_invariant(rollback)) {
    out.logits.append(say(
        `Pass ${drew} is INVARIANT and takes its sums as the replay does. Its token is dropped all the same, because `,
        'the pass read keys and values (KV) that fast passes had written before. This is the exception: ',
        'most candidates that are dropped come from fast passes.'));
  }
  const how = run.diff_arguments(rollback);
  out.sum.replaceChildren();
  if (!how.args) {
    out.sum.append(say(`The two passes cannot be run again by themselves here: ${how.why}. Another rollback can.`));
    return;
  }
  out.sum.append(say('Both passes run again, and the first sum that differs is looked for…'));
  let text = '';
  try {
    await page.programs.call('program', {name: 'diff', args: how.args}, (part) => text += part.text);
  } catch (error) {
    if (mine === shown) page.fail(error);
  }
  if (mine === shown) out.sum.replaceChildren(...sum_of(text, how, run, rollback));
}

// Drawings are as wide as the page, so that their text is as large as other text on a phone, too.
function width_of(most) {
  return Math.max(280, Math.min(most, document.getElementById('why').clientWidth || most));
}

// ---- the logits ----
// chosen: the token that the pass has drawn at random, if it did not take the likeliest.
function bars(title, logits, scale, wrong, right, chosen) {
  const wide = width_of(600) - 40, narrow = wide < 400, high = narrow ? 52 : 34, left = narrow ? 85 : 150;
  const room = wide - left - (narrow ? 75 : 190);
  const sorted = [...logits].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  // The largest logits are close to each other, so the bars begin where the smallest one shown nearly ends.
  const least = Math.min(...sorted.map((l) => l[1])), base = Math.min(least - 0.25 * (scale - least), scale - 0.5);
  const bits_at = narrow ? {x: left} : {x: wide - 4, 'text-anchor': 'end'};
  const picture = svg('svg', {viewBox: `0 0 ${wide} ${high * sorted.length}`, role: 'img'});
  picture.append(svg('title', {}, sorted.map((l) => `${name_of(l[0])}: ${l[1]}`).join(', ')));
  for (const [i, [token, logit, bits]] of sorted.entries()) {
    const y = high * i, size = Math.max(2, room * (logit - base) / (scale - base));
    const taken = chosen ? token === chosen : i === 0;
    const label =
        svg('text',
            {x: left - 8, y: y + 23, 'text-anchor': 'end', 'font-size': 19, 'font-weight': taken ? 'bold' : 'normal'},
            name_of(token));
    const fill = token === right ? 'var(--own)' : token === wrong ? 'var(--rollback)' : 'var(--invariant)';
    picture.append(
        label, svg('rect', {x: left, y: y + 5, width: size, height: 24, rx: 3, fill}),
        svg('text', {x: left + size + 8, y: y + 23, 'font-size': 17}, `${logit}`),
        svg('text', {...bits_at, y: y + (narrow ? 46 : 23), 'font-size': 15, 'font-family': 'monospace', opacity: 0.75},
            bits));
  }
  const tied = sorted[0][1] === sorted[1][1], by = Number((sorted[0][1] - sorted[1][1]).toPrecision(3));
  let takes = `It takes ${name_of(sorted[0][0])}, by ${by}.`;
  if (tied) takes = `Two logits are equal, and then the lower token number counts: it takes ${name_of(sorted[0][0])}.`;
  if (chosen) takes = `The same random number draws ${name_of(chosen)} from these logits.`;
  return element('div', {class: 'pane'}, element('h3', {}, title), picture, element('p', {class: 'faint'}, takes));
}

// ---- the sum ----
// Reads what diff --explain prints: of each side its parts, its sum and what bf16 makes of it.
export function read_sum(text) {
  /** @type {any[]} */
  const sides = [];
  /** @type {any} */
  let side = null;
  for (const line of text.split('\n')) {
    const head = line.match(/^(-[ab]) adds them in (\d+) parts?, because its pass is (\w+) with (\d+) rows?/);
    const part = line.match(/^ {2}products +(\d+) to +(\d+) +(\S+)/);
    const sum = line.match(/^ {2}sum +(\S+) +in bf16 (\S+)/);
    if (head) sides.push(side = {parts: [], schedule: head[3], rows: Number(head[4]), sum: 0, text: '', bf16: 0});
    if (part && side) side.parts.push({from: Number(part[1]), to: Number(part[2]), value: Number(part[3])});
    if (sum && side) side.sum = Number(sum[1]), side.text = sum[1], side.bf16 = Number(sum[2]), side = null;
  }
  const number = (name) => Number(text.match(new RegExp(`^${name} +(\\S+)`, 'm'))?.[1]);
  const products = Number(text.match(/^The sum behind it: (\d+) products/m)?.[1]);
  if (sides.length < 2 || !products) return null;
  const row = Number(text.match(/^The first difference: .*row (\d+) /m)?.[1]);
  return {sides, products, row, halfway: number('halfway'), exact: number('exact')};
}

function sum_of(text, {args, passes}, run, rollback) {
  const details = element(
      'details', {}, element('summary', {}, 'All that build/diff --explain says of it'),
      element('pre', {}, `build/diff ${args.join(' ')}\n\n${text}`));
  const sum = read_sum(text);
  if (!sum) return [say('The first value that differs is not a sum that build/diff can take again.'), details];
  const [a, b] = sum.sides, pass = passes[sum.row] ?? passes.at(-1), behind = passes.length - 1 - sum.row;
  const parts = (s) => s.parts.length > 1 ? `in ${s.parts.length} parts` : 'in one go';
  const earlier = `It belongs to pass ${pass}, which drew the candidate ${many(behind, 'token')} before the one that ` +
      'differs. From there the keys and values (KV) carry the difference on. ';
  return [
    element('h3', {}, `The first sum that differs: ${sum.products} products, the same ones on both sides`),
    say(behind > 0 ? earlier : '', 'Of the replay only the rows of this request run again here: what other rows share ',
        'the pass changes none of its sums.'),
    bracketing(`${name_of_pass(run, pass)}: ${parts(a)}`, a, sum, b),
    bracketing(`${name_of_pass(run, rollback.pass)}: ${parts(b)}`, b, sum, a),
    number_line(sum),
    say(`The two sums differ by ${Math.abs(a.sum - b.sum).toPrecision(2)}. The middle between two bf16 numbers lies `,
        'between them, or at one of them, so rounding makes them differ by ',
        `${Math.abs(a.bf16 - b.bf16).toPrecision(2)}. All layers behind it take that on, until it decides between two `,
        'tokens.'),
    details,
  ];
}

function many(n, what) {
  return `${n} ${what}${n === 1 ? '' : 's'}`;
}

// The digits of a number that differ from those of another are marked.
function digits(text, other) {
  let same = 0;
  while (same < text.length && text[same] === other[same]) same++;
  return [text.slice(0, same), element('span', {class: 'differs'}, text.slice(same))];
}

function bracketing(title, side, sum, other) {
  const wide = width_of(1000), gap = 14, picture = svg('svg', {viewBox: `0 0 ${wide} 62`, role: 'img'});
  const parts = side.parts.length ? side.parts : [{from: 1, to: sum.products, value: side.sum}];
  const room = (wide - gap * (parts.length - 1)) / sum.products;
  let x = 0;
  const says = [];
  for (const [i, part] of parts.entries()) {
    const size = room * (part.to - part.from + 1);
    picture.append(svg('path', {
      d: `M${x + 10} 4h-8v50h8M${x + size - 10} 4h8v50h-8`,
      fill: 'none',
      stroke: 'var(--text)',
      'stroke-width': 3
    }));
    const whole = `products ${part.from} to ${part.to}: ${part.value}`;
    const label = size > 10 * whole.length ? whole : part.value.toPrecision(size > 110 ? 6 : 2);
    says.push(whole);
    picture.append(svg('text', {x: x + size / 2, y: 36, 'text-anchor': 'middle', 'font-size': 18}, label));
    x += size;
    if (i + 1 < parts.length)
      picture.append(svg('text', {x: x + gap / 2, y: 37, 'text-anchor': 'middle', 'font-size': 22}, '+'));
    x += gap;
  }
  picture.prepend(svg('title', {}, says.join(', ')));
  return element(
      'div', {},
      element(
          'p', {class: 'say'}, element('b', {}, title), ': ', ...digits(side.text, other.text), ', in bf16 ',
          element('b', {}, String(side.bf16))),
      picture);
}

// Where both sums lie between the two bf16 numbers. The sums are drawn apart, because they are closer than a dot.
function number_line(sum) {
  const wide = width_of(1000), narrow = wide < 600, edge = narrow ? 30 : 120, [a, b] = sum.sides;
  const low = Math.min(a.bf16, b.bf16), high = Math.max(a.bf16, b.bf16);
  const at = (x) => edge + (wide - 2 * edge) * (x - low) / (high - low);
  const picture = svg('svg', {viewBox: `0 0 ${wide} 120`, role: 'img'});
  picture.append(svg('title', {}, `Between ${low} and ${high}, halfway is ${sum.halfway}`));
  const text = (x, y, t, more = {}) => svg('text', {x, y, 'text-anchor': 'middle', 'font-size': 18, ...more}, t);
  picture.append(
      svg('line', {x1: edge / 2, x2: wide - edge / 2, y1: 55, y2: 55, stroke: 'var(--text)', 'stroke-width': 2}));
  for (const x of [low, high]) {
    picture.append(
        svg('line', {x1: at(x), x2: at(x), y1: 43, y2: 67, stroke: 'var(--text)', 'stroke-width': 4}),
        text(
            narrow ? (x === low ? 0 : wide) : at(x), 90, `${x}`,
            narrow ? {'text-anchor': x === low ? 'start' : 'end'} : {}),
        text(at(x), 34, narrow ? '' : 'bf16'));
  }
  picture.append(
      svg('line', {
        x1: at(sum.halfway),
        x2: at(sum.halfway),
        y1: 45,
        y2: 65,
        stroke: 'var(--faint)',
        'stroke-width': 2,
        'stroke-dasharray': '4 3'
      }),
      text(at(sum.halfway), narrow ? 112 : 90, 'halfway'));
  for (const [side, name, fill] of [[a, 'candidate', 'var(--rollback)'], [b, 'replay', 'var(--own)']]) {
    const other = side === a ? b : a, shift = side.sum < other.sum ? -7 : 7;
    const x = Math.abs(at(a.sum) - at(b.sum)) < 14 ? (at(a.sum) + at(b.sum)) / 2 + shift : at(side.sum);
    picture.append(
        svg('circle', {cx: x, cy: 55, r: 7, fill}),
        text(x + (shift < 0 ? -8 : 8), 34, name, {'text-anchor': shift < 0 ? 'end' : 'start', 'font-weight': 'bold'}),
        svg('path', {
          d: `M${at(side.bf16) < x ? x - 14 : x + 14} 55H${at(side.bf16) < x ? x - 90 : x + 90}`,
          stroke: fill,
          'stroke-width': 4,
          fill: 'none'
        }));
  }
  return picture;
}

// ---- the toy ----
function toy() {
  const values = [16777216, 1, 1];
  const result = element('div', {'aria-live': 'polite'});
  const show = () => {
    const [p, q, r] = inputs.map((i) => Math.fround(Number(i.value)));
    const left = Math.fround(Math.fround(p + q) + r), right = Math.fround(p + Math.fround(q + r));
    const line = (text, value, other) =>
        element('p', {class: 'say'}, text, ' = ', element('b', {}, ...digits(String(value), String(other))));
    result.replaceChildren(
        line(`(${p} + ${q}) + ${r}`, left, right), line(`${p} + (${q} + ${r})`, right, left),
        say(left === right ? 'These three agree. Try numbers of unlike size.' :
                             'The same three numbers, and another sum: fp32 keeps 24 bits, and rounds ' +
                    'after each addition.'));
  };
  const inputs = values.map(
      (value, i) => element(
          'input',
          {type: 'number', step: 'any', value, 'aria-label': `number ${i + 1}`, oninput: show, id: `toy-${i}`}));
  show();
  return element(
      'div', {class: 'pane'}, element('h3', {}, 'Three numbers of your own, added in fp32'),
      element('div', {class: 'row'}, ...inputs), result);
}
