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

  /** The events of a deployment that reports can see, from a moment on or all of them: the session by the event's id. */
  async visibleEvents(deployment, since) {
    const parameters = new URLSearchParams({ deployment, columns: "event_id,session" });
    if (since) parameters.set("since", since.toISOString());
    const lines = await (await this.get(`/api/v1/events.ndjson?${parameters}`)).text();
    const events = lines.split("\n").filter(Boolean).map(JSON.parse);
    return new Map(events.map(({ event_id, session }) => [event_id, session]));
  }

  async get(address) {
    const answer = await fetch(address, { headers: this.headers });
    if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
    return answer;
  }
}
