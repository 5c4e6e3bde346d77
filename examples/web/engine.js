// engine.js: the page's side of worker.js.
export class Engine {
  constructor() {
    // A worker that begins as a blob keeps the page's Content-Security-Policy, by which it can ask no other server.
    const begin = `import ${JSON.stringify(new URL('worker.js', import.meta.url).href)};`;
    const address = URL.createObjectURL(new Blob([begin], {type: 'text/javascript'}));
    this.worker = new Worker(address, {type: 'module'});
    this.calls = new Map();
    this.last = 0;
    this.worker.onmessage = ({data}) => {
      const call = this.calls.get(data.id);
      if (data.part !== undefined) {
        call.part(data.part);
        return;
      }
      this.calls.delete(data.id);
      if (data.error !== undefined)
        call.reject(new Error(data.error));
      else
        call.resolve(data.result);
    };
    this.worker.onerror = (event) => {
      this.failed = new Error(event.message || 'worker.js or wasi.js did not load: reload the page');
      for (const call of this.calls.values()) call.reject(this.failed);
      this.calls.clear();
    };
  }

  // Calls that are made while another one runs wait for its end.
  call(name, values, part = () => {}) {
    const id = ++this.last;
    const before = this.queue || Promise.resolve();
    const answer = before.catch(() => {}).then(() => new Promise((resolve, reject) => {
                                                 if (this.failed) throw this.failed;
                                                 this.calls.set(id, {resolve, reject, part});
                                                 this.worker.postMessage({id, call: name, with: values});
                                               }));
    this.queue = answer;
    return answer;
  }

  // Ends what runs, if it can be ended: serving.
  stop() {
    this.worker.postMessage({id: this.last, call: 'stop'});
  }
}
