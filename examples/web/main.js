// main.js: loads the model and opens the views. Each view is a module with open(section, page) and perhaps show().
import * as audit from './audit.js';
import * as compare from './compare.js';
import * as cost from './cost.js';
import {Engine} from './engine.js';
import {set_tokens} from './run.js';
import * as serve from './serve.js';
import * as start from './start.js';
import * as why from './why.js';

const views = {
  start,
  serve,
  why,
  compare,
  cost,
  audit
};
const state = document.getElementById('state');

// What views share: the engine that serves, another one for programs and simulations, and ways to go elsewhere.
const page = {
  engine: new Engine(),
  programs: new Engine(),
  ready: null,  // a promise of the model's description
  select,
  // Shows why a rollback happened. run: a Run (run.js); rollback: one of its rollbacks.
  explain(run, rollback) {
    select('why');
    why.explain(run, rollback);
  },
  // The view Start, where a rollback is in sight: it has some only if its request is marked.
  show_marked() {
    select('start');
    start.mark();
  },
  fail(error) {
    state.textContent = String(error.message || error);
    state.className = 'error';
  },
};

function select(name, focus = true) {
  for (const view of Object.keys(views)) {
    const tab = document.getElementById(`tab-${view}`);
    tab.setAttribute('aria-selected', String(view === name));
    tab.tabIndex = view === name ? 0 : -1;
    document.getElementById(view).hidden = view !== name;
  }
  if (focus) document.getElementById(`tab-${name}`).focus();
  if (location.hash !== `#${name}`) history.replaceState(null, '', `#${name}`);
  views[name].show?.();
}

const names = Object.keys(views);
for (const [i, name] of names.entries()) {
  const tab = document.getElementById(`tab-${name}`);
  tab.addEventListener('click', () => select(name));
  tab.addEventListener('keydown', (event) => {
    const to = {ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: names.length - 1}[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    select(names[(to + names.length) % names.length]);
  });
}

page.ready = page.engine.call('model').then((model) => {
  set_tokens(model.tokens);
  state.textContent = `llm42 ${model.version}: tiny42 runs in this tab, and nothing leaves it`;
  return model;
});
page.ready.catch(page.fail);
for (const [name, view] of Object.entries(views)) view.open(document.getElementById(name), page);
const of_address = () => names.includes(location.hash.slice(1)) ? location.hash.slice(1) : 'start';
window.addEventListener('hashchange', () => select(of_address(), false));
select(of_address(), false);
