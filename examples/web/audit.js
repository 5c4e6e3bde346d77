// audit.js: build/audit in the page. It computes the answers of a transcript again and compares every bit; with one
// token changed, it finds that token.
import {element, say} from './dom.js';
import {name_of} from './run.js';

const LARGEST = 5e6;  // bytes of a transcript: a larger one would take minutes here
const NAME = 'transcript.txt';
let page, out = {}, original = null, changes = 0, latest = 0;

export function open(section, of_page) {
  page = of_page;
  const file = element('input', {type: 'file', accept: '.txt,text/plain', onchange: () => take(file.files[0])});
  out = {
    change:
        element('button', {id: 'audit-change', disabled: true, onclick: change}, 'Change one token and audit again'),
    verdict: element('div', {id: 'audit-verdict', class: 'audit-verdict', 'aria-live': 'polite'}),
    text: element('pre', {id: 'audit-text', hidden: true}),
    digest: element('p', {class: 'digest', id: 'audit-digest', 'aria-live': 'polite'}),
  };
  const drop = element(
      'label', {
        class: 'drop',
        ondragover: (event) => {
          event.preventDefault();
          drop.classList.add('over');
        },
        ondragleave: () => drop.classList.remove('over'),
        ondrop: (event) => {
          event.preventDefault();
          drop.classList.remove('over');
          if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
        },
      },
      'or yours, dropped here: ', file);
  // A file that is dropped beside its place would be opened instead of the page.
  for (const type of ['dragover', 'drop']) window.addEventListener(type, (event) => event.preventDefault());
  section.append(
      element('h2', {}, 'Did this model really give these answers?'),
      say('An audit computes each answer again with your own copy of the model: if all tokens and all bits of their ' +
          'log-probabilities agree, no other model, quantisation or shortcut gave the answers, unless it gives the ' +
          'same bits. It does not prove that the transcript has all requests, or that anybody was served.'),
      element(
          'div', {class: 'row'},
          element('button', {class: 'primary', id: 'audit-h200', onclick: take_h200}, 'Audit a transcript of an H200'),
          drop, out.change),
      out.verdict, out.text, element('h3', {}, 'The arithmetic of this browser'),
      say('One number stands for the bits of passes of every schedule, of functions and of answers, as this browser ' +
          'computes them. Native builds (plain C, AVX2, AVX-512, ARM) print the same: make test TEST=isa shows them.'),
      element('div', {class: 'row'}, element('button', {id: 'audit-compute', onclick: digest}, 'Compute it here')),
      out.digest);
}

async function take_h200() {
  try {
    const answer = await fetch(new URL('h200.txt', import.meta.url));
    if (!answer.ok) throw new Error(`h200.txt: the server answered ${answer.status}`);
    begin(await answer.text());
  } catch (error) {
    conclude('refused', error.message);
  }
}

async function take(file) {
  if (!file) return;
  if (file.size > LARGEST) {
    conclude('refused', `${file.name} has more than ${LARGEST / 1e6} MB: audit it with build/audit.`);
    return;
  }
  begin(await file.text());
}

function begin(text) {
  original = text;
  changes = 0;
  audit(text);
}

async function change() {
  const changed = change_token(original, changes++);
  const digests = changed.text && /^file_digest: /m.test(original) ? await renew_digests(changed.text) : null;
  audit(digests || changed.text, changed.what + (digests ? ' All digests were computed again, as a cheat would.' : ''));
}

// Audits a transcript and shows what the program says as it comes. changed: what was changed in the text before.
async function audit(text, changed = '') {
  const mine = ++latest, said = ['', ''];
  out.text.hidden = false;
  out.text.textContent = '';
  out.verdict.replaceChildren(say(`${changed} Auditing…`));
  try {
    await page.ready;  // it names tokens
    const how = {name: 'audit', args: [NAME, '--model', 'tiny42'], texts: {[NAME]: text}};
    const status = await page.programs.call('program', how, ({text: part, fd}) => {
      said[fd - 1] += part;
      if (mine === latest) out.text.append(part);
    });
    if (mine !== latest) return;
    report(status, said, changed);
    out.change.disabled = !change_token(original, 0).text;
  } catch (error) {
    if (mine === latest) conclude('refused', error.message);
  }
}

const KINDS = {
  verified: {sign: '✓', head: 'Verified to the bit', look: 'good'},
  differs: {sign: '✗', head: 'Not verified', look: 'bad'},
  refused: {sign: '!', head: 'Not audited', look: 'bad'},
};

function conclude(kind, ...texts) {
  const {sign, head, look} = KINDS[kind];
  out.verdict.replaceChildren(
      element('p', {class: look}, element('span', {class: 'sign', 'aria-hidden': 'true'}, sign), ` ${head}`),
      ...texts.filter(Boolean).map((t) => say(t)));
}

function report(status, said, changed) {
  const [text, errors] = said;
  if (status === 0) {
    const [, requests] = text.match(/^verified to the bit: (.*? requests?),/m) || [];
    const [, compared] = text.match(/; (\d+) tokens? and log-prob/) || [];
    conclude('verified', changed, `${requests}, with ${compared} tokens and the bits of their log-probabilities.`);
  } else if (status === 1)
    conclude('differs', changed, what_differs(text));
  else {
    const at_line = (whole, line) => line ? `Line ${line}: ` : '';
    const why = errors.trim().replace(/^[^:]*: /, '').replace(/^transcript\.txt:(?:(\d+):)? /, at_line);
    const digests = /digest: .*must be the digest/.test(errors) ?
        'The check of digests failed, before any token was computed. A cheat would compute the digests again; then ' +
            'the comparison of tokens would fail.' :
        '';
    conclude('refused', changed, digests, why);
  }
}

const quote = (token) => `“${name_of(token).replace(/^·/, '')}”`;

// In words, from the lines of build/audit about the first request that differs.
function what_differs(text) {
  const request = text.match(/^request (\d+): (differs: .*|cannot be audited.*)((?:\n  .*)*)/m);
  if (!request) return text.trim().split('\n').at(-1);
  const [, id, what, details] = request;
  const token = details.match(/first token: (\d+) of (\d+): recorded (\d+) .*?computed (\d+)/);
  const logprob = details.match(/first log-probability: (\d+) of (\d+), of token (\d+)/);
  if (token) {
    return `Request ${id} differs, first at token ${token[1]} of ${token[2]}: the transcript has ` +
        `${quote(Number(token[3]))}, and the model gives ${quote(Number(token[4]))}.`;
  }
  if (logprob) return `Request ${id} has other bits, first at the log-probability of token ${logprob[1]}.`;
  return `Request ${id} ${what}.`;
}

// ---- the cheat ----
// Changes a token in the middle of an answer, each time in another answer. Returns the new text, null if no answer is
// long enough, and what was changed.
function change_token(text, number) {
  const lines = text.split('\n'), answers = [];
  let request = '', deterministic = false;
  for (const [at, line] of lines.entries()) {
    if (line.startsWith('request: ')) request = line.slice(9);
    if (line.startsWith('deterministic: ')) deterministic = line.endsWith('yes');
    if (!line.startsWith('tokens: ') || !deterministic) continue;
    const tokens = line.slice(8).split(',').map(Number);
    if (tokens.length > 1) answers.push({at, request, tokens});
  }
  if (!answers.length) return {text: null, what: ''};
  const {at, request: id, tokens} = answers[number % answers.length], middle = tokens.length >> 1;
  // Words are easier to see than parts of words.
  const is_word = (t) => /^·[a-z]{2}/.test(name_of(t));
  const i = Math.max(middle, tokens.findIndex((t, k) => k >= middle && is_word(t))), was = tokens[i];
  tokens[i] = tokens.slice(0, i).reverse().find((t) => t !== was && is_word(t)) ?? was + 1;
  lines[at] = `tokens: ${tokens.join(',')}`;
  const what = `Token ${i + 1} of request ${id} was changed from ${quote(was)} to ${quote(tokens[i])}.`;
  return {text: lines.join('\n'), what};
}

// Computes the digests of a transcript again (examples/util/llm42_transcript.h). Returns null where the
// browser has no SHA-256: it gives that to pages of this computer and of https alone.
async function renew_digests(text) {
  if (!globalThis.crypto?.subtle) return null;
  const sha256 = async (part) => {
    const bytes = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(part)));
    return [...bytes].map((b) => b.toString(16).padStart(2, '0')).join('');
  };
  const head = text.slice(0, text.indexOf('\n', text.search(/^result: /m)) + 1);
  let renewed = '', answer = '';
  for (const line of text.match(/[^\n]*\n/g)) {
    if (line.startsWith('request: ')) answer = '';
    if (line.startsWith('digest: '))
      renewed += `digest: ${await sha256(head + answer)}\n`;
    else if (line.startsWith('file_digest: '))
      renewed += `file_digest: ${await sha256(renewed)}\n`;
    else
      renewed += line;
    answer += line;
  }
  return renewed;
}

// ---- this browser ----
async function digest() {
  let text = '';
  out.digest.textContent = 'Computing for some seconds…';
  try {
    const status = await page.programs.call('program', {name: 'digest', args: []}, (part) => text += part.text);
    const [, number] = text.match(/digest ([0-9a-f]{16})/) || [];
    if (status || !number) throw new Error(text.trim() || `the program ended with status ${status}`);
    out.digest.textContent = number;
  } catch (error) {
    out.digest.replaceChildren(element('span', {class: 'bad'}, error.message));
  }
}
