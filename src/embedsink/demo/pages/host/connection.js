// The connection to embedsink, with a switch that simulates an outage.

const DELIVERIES = "/api/v1/events";
const STORAGE_KEY = "embedsink demo: offline";

export class Connection {
  /** Restores the switch after a reload of this tab. */
  constructor() {
    this.isOffline = inSessionStorage((storage) => storage.getItem(STORAGE_KEY)) !== null;
    const originalFetch = window.fetch.bind(window);
    window.fetch = (url, options) => {
      const isDelivery = new URL(url, location).pathname === DELIVERIES;
      // A browser without a network also rejects with a TypeError.
      return this.isOffline && isDelivery ? Promise.reject(new TypeError("offline")) : originalFetch(url, options);
    };
  }

  disconnect() {
    this.isOffline = true;
    inSessionStorage((storage) => storage.setItem(STORAGE_KEY, ""));
  }

  reconnect() {
    this.isOffline = false;
    inSessionStorage((storage) => storage.removeItem(STORAGE_KEY));
    // A browser fires this event when its network returns.
    window.dispatchEvent(new Event("online"));
  }
}

/** Returns the result of the action, or null if the browser denies access to storage. */
function inSessionStorage(action) {
  try {
    return action(sessionStorage);
  } catch {
    return null;
  }
}
