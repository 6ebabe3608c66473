// The connection to embedsink, with a switch that simulates an outage.

const DELIVERIES = "/api/v1/events";
const STORAGE_KEY = "embedsink demo: offline";

export class Connection {
  /** Restores the switch after a reload of this tab. */
  constructor() {
    this.isOffline = inSessionStorage((storage) => storage.getItem(STORAGE_KEY)) !== null;
    const send = window.fetch.bind(window);
    // Fails as without a network: no request is sent.
    window.fetch = (url, options) =>
      this.isOffline && new URL(url, location).pathname === DELIVERIES
        ? Promise.reject(new TypeError("offline"))
        : send(url, options);
  }

  disconnect() {
    this.isOffline = true;
    inSessionStorage((storage) => storage.setItem(STORAGE_KEY, ""));
  }

  reconnect() {
    this.isOffline = false;
    inSessionStorage((storage) => storage.removeItem(STORAGE_KEY));
    // The event that a browser fires when its network returns.
    window.dispatchEvent(new Event("online"));
  }
}

/** Returns the action's result; null where the browser denies storage, so that a reload reconnects. */
function inSessionStorage(action) {
  try {
    return action(sessionStorage);
  } catch {
    return null;
  }
}
