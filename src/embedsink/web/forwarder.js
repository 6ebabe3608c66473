// Takes the events of an embed out of `postMessage` and delivers them to embedsink. docs/browser.md says how to add it and
// what it promises, forwarder.d.ts has its types. Nothing in here may throw into the host page.
//
//     message ─▶ take ─▶ queue, and localStorage until it is durable ─▶ flush ─▶ post ─▶ settle: forgotten,
//                             ▲ adopt: what closed pages have left                       sent again, or counted as lost
//
// It is served minified, without comments and with short names; only properties and top-level names stay as they are.

/** @type {typeof import("./forwarder").forward} */
export const forward = (options) => {
  // Browsers allow 64 KiB of `keepalive` bodies at once; what is around the events has to fit in too.
  const BODY_BYTES_MAX = 6e4;
  // localStorage has 5 MiB, and it is the host page's.
  const QUEUE_BYTES_MAX = 1e6;
  const SEND_COUNT = 10;
  const SEND_MS = 1e3;
  const ANSWER_MS_MAX = 3e4;
  const BACKOFF_MS_MAX = 6e4;
  const RETRY_AFTER_S_MAX = 3600;
  // The server knows an id for 7 days. What may have arrived and is older than this could count twice.
  const AGE_MS_MAX = 5e8;

  let { origin, key, endpoint, context, serviceName = "svc", iframe, recordActions, onEvent, onError } = { ...options };
  const { parse, stringify } = JSON;

  /** Do what may fail without consequence for an event. */
  const attempt = (action) => {
    try {
      return action();
    } catch {}
  };

  /** A UUID of version 4. Pages of plain HTTP have no `randomUUID`. */
  const uuid = () =>
    crypto.randomUUID?.() ??
    "xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx".replace(/x/g, () =>
      (crypto.getRandomValues(new Uint8Array(1))[0] & 15).toString(16),
    );

  // Where the browser denies storage, an object that lives as long as the page.
  const store = attempt(() => localStorage) ?? {};
  const self = uuid();
  const stopping = new AbortController();
  const sessions = new WeakMap();
  // An entry has its `key` in the store, a `context` and an event as `text`, both JSON, and the event's `size`. One without
  // text has a `reason` and a `count` of lost events.
  let queue = [];
  let releases = [];
  let serial = 0;
  let flying = 0;
  let flyingBytes = 0;
  let countMax = 500;
  let failures = 0;
  let notBefore = 0;
  let prefix, timer;

  const tell = (entry, stage) => attempt(() => onEvent(parse(entry.text), stage));

  /** Keep an entry beyond this page. A full storage keeps nothing; the queue in memory still does. */
  const save = (entry) => attempt(() => (store[entry.key] = stringify(entry)));

  const add = (entry) => {
    entry.key = `${prefix}${self} ${Date.now()} ${serial++}`;
    queue.push(entry);
    save(entry);
    return entry;
  };

  /** Count events that are given up. The count is delivered like events, but waits for some. */
  const lose = (context, reason, count = 1) => {
    const entry =
      queue.find((one) => one.reason == reason && one.context == context && !one.isFlying) ??
      add({ context, reason, count: 0, size: 99 });
    entry.count += count;
    save(entry);
  };

  /** The session of a window, by its id and the number of its next event. */
  const numbered = (source, isReady) => {
    let session = sessions.get(source);
    if (!session || isReady) {
      const frame = iframe ?? [...document.querySelectorAll("iframe")].find((one) => one.contentWindow == source);
      // The address has a credential. 32 bits (FNV-1a) let a reload go on with its session; no more than they stay in this tab.
      const credential = /[?&]session=([^&#]+)/.exec(frame?.src)?.[1];
      let hash = 0x811c9dc5;
      for (const letter of credential ?? "") hash = Math.imul(hash ^ letter.codePointAt(), 0x1000193);
      session = { store: (credential && attempt(() => sessionStorage)) ?? {}, key: prefix + hash };
      sessions.set(source, session);
    }
    // Read each time: another page of this tab may have gone on with it.
    const [id, seq] = (session.store[session.key] ?? uuid() + " 0").split(" ");
    const next = id + " " + (+seq + 1);
    attempt(() => (session.store[session.key] = next)) ?? (session.store = { [session.key]: next });
    session.id = id;
    session.seq = +seq;
    return session;
  };

  /** Listens to messages, and to what actions.js tells of actions. */
  const take = (event) => {
    let where;
    try {
      const { data, source } = event;
      if (
        event.origin !== origin ||
        data.source !== serviceName + "-embed" ||
        data.direction !== (event.type == "message" ? "event" : "action") ||
        (iframe && iframe.contentWindow !== source)
      )
        throw 0;
      const isReady = data.type == serviceName + ":event:ready";
      const session = numbered(source, isReady);
      where = "{}";
      if (isReady) {
        // Of another type, they would have every event of the context rejected.
        const { deploymentId, embedTenant } = data.payload;
        if (Number.isSafeInteger(deploymentId)) session.deployment = deploymentId;
        if (embedTenant === `${embedTenant}`) session.tenant = embedTenant;
      }
      where = stringify({
        page: location.origin + location.pathname,
        ...context,
        session: session.id,
        deployment: context?.deployment ?? session.deployment,
        tenant: context?.tenant ?? session.tenant,
      });
      const text = stringify({ ...data, id: uuid(), seq: session.seq });
      const entry = { context: where, text, size: new Blob([text]).size };
      tell(entry, "seen");
      if (queue.reduce((sum, { size }) => sum + size, entry.size) > QUEUE_BYTES_MAX) {
        tell(entry, "lost");
        lose(where, "queue_overflow");
      } else {
        add(entry);
        if (queue.length < SEND_COUNT || failures) wake();
        else flush();
      }
    } catch {
      // What is no event of the embed is ignored. What is one and can't be JSON (a BigInt, a cycle) is lost.
      if (where) lose(where, "not_json");
      else forwarder.ignored++;
    }
  };

  const wake = (wait = failures
    ? (Math.min(2 ** failures * SEND_MS, BACKOFF_MS_MAX) * (1 + Math.random())) / 2
    : queue.length < SEND_COUNT ? SEND_MS : 0) => {
    timer ??= setTimeout(flush, wait);
  };

  /** Send what waits: one request at a time, but as much as the browser lets out when the page may be leaving. */
  const flush = (isLeaving) => {
    if (flying && !isLeaving) return;
    clearTimeout(timer);
    timer = null;
    const wait = notBefore - performance.now();
    if (wait > 0) return wake(wait);
    let batch;
    do {
      batch = [];
      let bytes = 0;
      for (const entry of queue) {
        if (
          !entry.isFlying &&
          entry.context == (batch[0] ?? entry).context &&
          batch.length < countMax &&
          (flyingBytes + bytes + entry.size < BODY_BYTES_MAX || !(isLeaving || batch[0]))
        ) {
          batch.push(entry);
          bytes += entry.size;
        }
      }
      if (batch[0]) post(batch, bytes, isLeaving);
    } while (isLeaving && batch[0]);
  };

  const post = async (batch, bytes, isLeaving) => {
    const lost = {};
    let status, wait, answer;
    flying++;
    flyingBytes += bytes;
    for (const entry of batch) {
      entry.isFlying = true;
      if (entry.reason) lost[entry.reason] = (lost[entry.reason] ?? 0) + entry.count;
      tell(entry, "sent");
    }
    try {
      // A string goes as text/plain, with the key in it: so browsers don't ask first, which a page that leaves can't await.
      const body = `{"sentAt":${Date.now()},"key":${stringify(key)},"context":${batch[0].context},"lost":${stringify(lost)},"events":[${batch.flatMap(({ text }) => text ?? [])}]}`;
      const response = await (isLeaving && !("keepalive" in Request.prototype)
        ? navigator.sendBeacon(endpoint, body)
        : fetch(endpoint, {
            method: "POST",
            body,
            keepalive: bytes < BODY_BYTES_MAX,
            credentials: "omit",
            signal: AbortSignal.timeout?.(ANSWER_MS_MAX),
          }));
      status = response.status;
      wait = response.headers.get("retry-after");
      answer = await response.json();
    } catch (error) {
      answer = error;
    }
    flying--;
    flyingBytes -= bytes;
    for (const entry of batch) entry.isFlying = false;
    if (status != 202 || answer.rejected?.length) attempt(() => onError(answer));
    if (batch[1] && (status == 413 || answer.reason == "no_credential")) {
      // Too much, or one can't be read, and then nor can the key: halves tell which.
      countMax = batch.length >> 1;
      wake(0);
    } else if (status == 202 || (status > 399 && status < 500 && status != 408 && status != 429)) {
      // A 422 keeps them too, in the quarantine.
      const isKept = status == 202 || status == 422;
      failures = 0;
      countMax *= 2;
      queue = queue.filter((entry) => !batch.includes(entry));
      for (const entry of batch) {
        delete store[entry.key];
        tell(entry, isKept ? "durable" : "lost");
        if (!isKept) lose(entry.context, entry.reason ?? "http_" + status, entry.count);
      }
      if (queue.some(({ text }) => text)) wake();
    } else {
      failures++;
      notBefore = performance.now() + Math.min(wait | 0, RETRY_AFTER_S_MAX) * 1e3;
      wake();
    }
  };

  /** Take over what a forwarder has left, and keep its lock: nobody else then sends it. */
  const own = (name) => {
    const load = (lock) => {
      if (!lock) return;
      for (const key of Object.keys(store).sort()) {
        if (key.startsWith(prefix + name) && !queue.some((entry) => entry.key == key)) {
          const entry = attempt(() => parse(store[key]));
          if (key.split(" ")[4] > Date.now() - AGE_MS_MAX && entry) queue.push(entry);
          else { delete store[key]; lose("{}", "expired") }
        }
      }
      flush();
      return new Promise((resolve) => releases.push(resolve));
    };
    // Without locks, several tabs may send the same: its id lets it count once.
    navigator.locks?.request(prefix + name, { ifAvailable: true }, load).catch(() => {}) ?? load(1);
  };

  const adopt = () => {
    new Set([self, ...Object.keys(store).flatMap((key) => key.startsWith(prefix) ? key.split(" ")[3] : [])]).forEach(own);
  };

  const forwarder = {
    ignored: 0,
    flush: () => flush(),
    stop: () => {
      stopping.abort();
      flush(true);
    },
  };

  try {
    origin = new URL(origin).origin;
    endpoint = new URL(endpoint ?? "api/v1/events", endpoint ? location : import.meta.url).href;
    prefix = `embedsink ${endpoint} ${origin} `;
    const on = (type, listener) => addEventListener(type, listener, stopping);
    on("message", take);
    if (recordActions) on("embedsink:action", take);
    on("online", adopt);
    on("pageshow", adopt);
    on("visibilitychange", () => (document.hidden ? flush(true) : adopt()));
    on("pagehide", () => {
      flush(true);
      for (const release of releases.splice(0)) release();
    });
    adopt();
  } catch (error) {
    attempt(() => onError(error));
  }
  return forwarder;
};

for (const { src, dataset } of globalThis.document?.scripts ?? []) {
  const { viewer, tenant, deployment, ...options } = dataset;
  if (src == import.meta.url && options.key)
    forward({ ...options, context: { viewer, tenant, deployment: deployment && +deployment } });
}
