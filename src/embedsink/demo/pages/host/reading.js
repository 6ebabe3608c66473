// The read API: reports, and raw events to see whether one has arrived. Its key can read, and nothing else.

export class Reading {
  constructor(key) {
    this.headers = { Authorization: `Bearer ${key}` };
  }

  /** The rows of a report. */
  async report(name, parameters) {
    return (await this.get(`/api/v1/reports/${name}.json?${new URLSearchParams(parameters)}`)).json();
  }

  /** Which reports there are. */
  async reports() {
    return (await this.get("/api/v1/reports")).json();
  }

  /** The ids of the events of a deployment that reports can see, from a moment on. */
  async visibleIds(deployment, since) {
    const parameters = new URLSearchParams({ deployment, since: since.toISOString(), columns: "event_id" });
    const lines = await (await this.get(`/api/v1/events.ndjson?${parameters}`)).text();
    return lines
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line).event_id);
  }

  async get(address) {
    const answer = await fetch(address, { headers: this.headers });
    if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
    return answer;
  }
}
