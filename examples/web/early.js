// early.js: says why the page cannot begin where modules do not load: from a file, in an old browser, without a part.
(function() {
function say(text) {
  var state = document.getElementById('state');
  if (state.className) return;  // the first error says most
  state.textContent = text;
  state.className = 'error';
}
if (location.protocol === 'file:')
  say('A browser runs this page from a server alone: python3 -m http.server, then open http://localhost:8000');
else if (!('noModule' in HTMLScriptElement.prototype))
  say('This browser is too old for the page: it knows no JavaScript modules.');
window.addEventListener('error', function(event) {
  if (event.target.type === 'module') say('A part of the page did not load: reload it.');
}, true);
})();
