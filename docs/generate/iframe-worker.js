// Browsers start no worker for a page that was opened from a folder. There the search runs in a hidden frame instead,
// which looks like a worker: it takes and sends messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      this.ready = new Promise((resolve) => { this.resolve = resolve; });
      window.addEventListener("message", (event) => {
        if (event.source !== inside) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      inside.document.open();
      inside.document.write(`<!doctype html><html><body></body></html>`);
      inside.document.close();
      inside.postMessage = (data) => window.parent.window.dispatchEvent(
        new MessageEvent("message", { data, source: inside }));
      inside.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => this.load(one)),
        Promise.resolve());
      this.load(new URL(url, location).href).then(this.resolve);
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = new URL(url, location).href;
        script.onload = resolve;
        script.onerror = reject;
        this.frame.contentDocument.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
