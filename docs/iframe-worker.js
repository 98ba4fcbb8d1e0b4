// Lets the search work where pages are opened as files. Browsers refuse workers there, so what Material for MkDocs
// gives to a worker runs in a hidden frame. Its script looks for the name IFrameWorker in the page, for the URL of
// the frame's first script, and for an importScripts() that may take its time.
(() => {
  if (location.protocol !== "file:") return;

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((resolve) => frame.addEventListener("load", resolve));
      document.body.append(frame);
      const inside = frame.contentWindow;
      this.inside = inside;
      inside.document.open();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...urls) => {
        for (const each of urls) await this.run(each);
      };
      inside.document.write(`<body><script src="${url}"></` + "script></body>");
      inside.document.close();
    }

    run(url) {
      const script = this.inside.document.createElement("script");
      script.src = url;
      return new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = () => reject(new Error(`${url} cannot be loaded`));
        this.inside.document.body.append(script);
      });
    }

    async postMessage(data) {
      await this.ready;
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  }

  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
})();
