// dom.js: elements of the page from JavaScript, and the prompts that all views use.

// element('p', {class: 'say', onclick: f}, 'text', another element, ...)
export function element(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on'))
      e.addEventListener(key.slice(2), value);
    else if (value === true)
      e.setAttribute(key, '');
    else if (value !== false && value !== undefined && value !== null)
      e.setAttribute(key, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

export function svg(name, attributes = {}, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on'))
      e.addEventListener(key.slice(2), value);
    else
      e.setAttribute(key, value);
  }
  e.append(...children);
  return e;
}

// A slider with its name and value. Returns the element; its `input` is the slider, and `show` puts another value.
export function slider(
    name, {min, max, step = 1, value, show = (x) => String(x)}, oninput = (_x) => {}, onchange = (_x) => {}) {
  // The label alone would be the output's, which stands first in it.
  const input = element('input', {type: 'range', min, max, step, value, 'aria-label': name}),
        output = element('output', {}, show(value));
  input.addEventListener('input', () => {
    output.textContent = show(Number(input.value));
    oninput(Number(input.value));
  });
  input.addEventListener('change', () => onchange(Number(input.value)));
  const label = element('label', {}, `${name}: `, output, input);
  label.input = input;
  label.value = () => Number(input.value);
  return label;
}

export function choice(name, words, value, onchange = (_word) => {}) {
  const select = element('select', {onchange: () => onchange(select.value)});
  for (const [word, text] of words) select.append(element('option', {value: word, selected: word === value}, text));
  const label = element('label', {}, `${name} `, select);
  label.select = select;
  label.value = () => select.value;
  return label;
}

export function say(...children) {
  return element('p', {class: 'say'}, ...children);
}

export function legend(entries) {
  return element('div', {class: 'legend'}, ...entries.map(([colour, text]) => {
    const mark = element('i');
    mark.style.background = colour;
    return element('span', {}, mark, text);
  }));
}

// The prompts of build/rollback, in their order: they were chosen so that the low bits change a token among the first
// 64. The view Serve begins with the run of build/rollback.
export const PROMPTS = [
  'The sailor was dead, and',
  'At the end of the street there lived a',
  'In the garden there was a',
  'The farmer thought of the',
  'On the third day the rain',
  'My uncle began to cry when',
  'The landlord dropped the candle and',
  'The thief smiled at',
  'The shepherd looked at the sea and',
  'That same night the house',
  'The judge shut the door and',
  'The baron opened the letter and',
  'The king heard a voice',
  'The young lady was born in',
  'The thief shut the door and',
  'The poor girl kept a',
];
// The one with which views begin that show one prompt.
export const FIRST = 'The landlord dropped the candle and';
