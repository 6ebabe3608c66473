// The line to embedsink, which may be cut: what the forwarder does then can be seen without pulling a cable.

const DELIVERIES = "/api/v1/events";
const KEPT_AS = "embedsink demo: the line is cut";

export class Line {
  /** As it was before a reload: cut in this tab until somebody mends it. */
  constructor() {
    this.isCut = inTab((storage) => storage.getItem(KEPT_AS)) !== null;
    const send = window.fetch.bind(window);
    // As when there is no network: the request never leaves, and nobody says why.
    window.fetch = (address, options) =>
      this.isCut && new URL(address, location).pathname === DELIVERIES
        ? Promise.reject(new TypeError("The line is cut."))
        : send(address, options);
  }

  cut() {
    this.isCut = true;
    inTab((storage) => storage.setItem(KEPT_AS, ""));
  }

  mend() {
    this.isCut = false;
    inTab((storage) => storage.removeItem(KEPT_AS));
    // What a browser says of its own accord when the network is back.
    window.dispatchEvent(new Event("online"));
  }
}

/** What this tab remembers. Where the browser denies storage it is null, and a cut line is whole after a reload. */
function inTab(action) {
  try {
    return action(sessionStorage);
  } catch {
    return null;
  }
}
