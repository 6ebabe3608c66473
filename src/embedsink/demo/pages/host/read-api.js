// The read API: reports, and raw events to detect when an event is visible. The page's key can only read.

export class ReadApi {
  constructor(key) {
    this.headers = { Authorization: `Bearer ${key}` };
  }

  /** Returns the rows of a report. */
  async report(name, params) {
    return (await this.get(`/api/v1/reports/${name}.json?${new URLSearchParams(params)}`)).json();
  }

  /** Returns the descriptions of all reports. */
  async reports() {
    return (await this.get("/api/v1/reports")).json();
  }

  /** Returns the session of each visible event of a deployment by event id, optionally since a date. */
  async visibleEvents(deployment, since) {
    const params = new URLSearchParams({ deployment, columns: "event_id,session" });
    if (since) params.set("since", since.toISOString());
    const lines = await (await this.get(`/api/v1/events.ndjson?${params}`)).text();
    const events = lines.split("\n").filter(Boolean).map(JSON.parse);
    return new Map(events.map(({ event_id, session }) => [event_id, session]));
  }

  async get(url) {
    const response = await fetch(url, { headers: this.headers });
    if (!response.ok) throw new Error(`${url}: ${response.status}`);
    return response;
  }
}
