// Takes the events of an embed out of `postMessage` and delivers them to embedsink. docs/browser.md says how to add it and
// what it promises, forwarder.d.ts has its types. Nothing in here may throw into the host page.
//
//     message ─▶ take ─▶ queue, and localStorage until it is durable ─▶ flush ─▶ post ─▶ 202: forgotten; or else
//                             ▲ own: what closed pages have left                         sent again, or counted in lost
//
// scripts/minify makes what is served: no comments, short names. Properties keep theirs, so there are few.

/** @type {typeof import("./forwarder").forward} */
export const forward = (options) => {
  // Browsers allow 64 KiB of `keepalive` bodies at once; what is around the events has to fit in too.
  const BODY_BYTES_MAX = 6e4;
  let { origin, key, endpoint, context, serviceName = "svc", iframe, recordActions, onEvent, onError = console.warn } = {
    ...options,
  };
  const { parse, stringify } = JSON;

  /** Do what may fail without consequence for an event. */
  const attempt = (action) => {
    try {
      return action();
    } catch {}
  };

  /** A UUID of version 4. Pages of plain HTTP have no `randomUUID`, but each blob's address ends in one (File API, 8.3.1). */
  const uuid = () => crypto.randomUUID?.() ?? URL.createObjectURL(new Blob()).slice(-36);

  // Where the browser denies storage, an object that lives as long as the page.
  const store = attempt(() => localStorage) ?? {};
  const sessions = new WeakMap();
  const lost = {};
  // Each has its `context` and the event as `text`, both JSON, the `size` of that, and when it came: `at`.
  let queue = [];
  let flyingBytes = 0;
  let bytesMax = BODY_BYTES_MAX;
  let failures = 0;
  let notBefore = 0;
  let prefix, place, timer;

  const tell = (entry, stage) => attempt(() => onEvent(parse(entry.text), stage));

  /** Keep what waits beyond this page. A full storage keeps what it has. */
  const save = () =>
    attempt(() => {
      if (queue[0] || stringify(lost)[2]) store[place] = stringify([queue, lost]);
      else delete store[place];
    });

  /** Count events that are given up, by reason. The counts go with the next delivery; what it has reported is taken off. */
  const lose = (counts, sign = 1) => {
    for (const reason in counts) lost[reason] = (lost[reason] | 0) + sign * counts[reason] || undefined;
    save();
  };

  /** Listens to messages, and to what actions.js tells of actions. */
  const take = (event) => {
    let reason;
    try {
      const { data, source } = event;
      if (
        event.origin !== origin ||
        data.source !== serviceName + "-embed" ||
        data.direction !== (event.type == "message" ? "event" : "action") ||
        (iframe && iframe.contentWindow !== source)
      )
        throw 0;
      reason = "not_json";
      const isReady = data.type == serviceName + ":event:ready";
      let session = sessions.get(source);
      if (!session || isReady) {
        const { src } = iframe ?? [...document.querySelectorAll("iframe")].find((one) => one.contentWindow == source) ?? {};
        session = { id: uuid(), seq: 0 };
        if (/[?&]session=/.test(src)) {
          // The address holds a credential. A hash of 32 bits lets a reload go on with its session, and stays in this tab.
          session.key = prefix + [...src].reduce((hash, letter) => (hash * 31 + letter.codePointAt()) | 0, 0);
        }
      }
      // Read each time: another page of this tab may have gone on with it.
      session = attempt(() => session.key && parse(sessionStorage[session.key])) ?? session;
      sessions.set(source, session);
      if (isReady) {
        const { deploymentId, embedTenant } = data.payload ?? {};
        // Of another type, they would have every event of the context rejected.
        session.known = {
          deployment: Number.isSafeInteger(deploymentId) ? deploymentId : null,
          tenant: typeof embedTenant == "string" ? embedTenant : null,
        };
      }
      const text = stringify({ ...data, id: uuid(), seq: session.seq++ });
      // Deleted first, so that a full storage does not leave an old number to go on from.
      attempt(() => session.key && delete sessionStorage[session.key] && (sessionStorage[session.key] = stringify(session)));
      const entry = {
        context: stringify({
          page: location.origin + location.pathname,
          ...session.known,
          ...parse(stringify({ ...context })),
          session: session.id,
        }),
        text,
        size: new Blob([text]).size,
        at: Date.now(),
      };
      tell(entry, "seen");
      // localStorage has 5 MiB, and it is the host page's.
      if (stringify([queue, entry]).length > 5e5) {
        tell(entry, "lost");
        throw (reason = "queue_overflow");
      }
      queue.push(entry);
      save();
      next();
    } catch {
      // What is no event of the embed is ignored. What is one and can't be JSON (a BigInt, a cycle) is lost.
      if (!reason) forwarder.ignored++;
      else lose({ [reason]: 1 });
    }
  };

  const wake = (wait) => {
    timer ??= setTimeout(flush, wait);
  };

  const next = () => {
    if (failures) wake((1 + Math.random()) * Math.min(500 * 2 ** failures, 3e4));
    else if (queue[9]) flush();
    else if (queue[0]) wake(1e3);
  };

  /** Send what waits: one request at a time, but as much as the browser lets out when the page may be leaving. */
  const flush = (isLeaving) => {
    if (!isLeaving) {
      clearTimeout(timer);
      timer = null;
      if (flyingBytes) return;
    }
    const wait = notBefore - performance.now();
    if (wait > 0) return wake(wait);
    const batch = [];
    let bytes = 0;
    for (const entry of queue) {
      if (
        !entry.flying &&
        entry.context == (batch[0] ?? entry).context &&
        (flyingBytes + bytes + entry.size < bytesMax || !(isLeaving || bytes))
      ) {
        batch.push(entry);
        bytes += entry.size;
      }
    }
    if (bytes) {
      post(batch, bytes, isLeaving);
      if (isLeaving) flush(true);
    }
  };

  const post = async (batch, bytes, isLeaving) => {
    // Not by a page that leaves: it hears no answer, and the next one would report them again.
    const reported = flyingBytes || isLeaving ? {} : { ...lost };
    let status, wait, answer;
    flyingBytes += bytes;
    for (const entry of batch) {
      entry.flying = true;
      tell(entry, "sent");
    }
    try {
      // A string goes as text/plain, with the key in it: so browsers don't ask first, which a page that leaves can't await.
      const body = stringify({
        sentAt: Date.now(),
        key,
        context: parse(batch[0].context),
        lost: reported,
        events: batch.map(({ text }) => parse(text)),
      });
      const response = await (isLeaving && !("keepalive" in Request.prototype)
        ? navigator.sendBeacon(endpoint, body)
        : fetch(endpoint, {
            method: "POST",
            body,
            keepalive: bytes < BODY_BYTES_MAX,
            signal: AbortSignal.timeout?.(3e4),
          }));
      status = response.status;
      wait = response.headers.get("retry-after");
      answer = Object(await response.json());
    } catch (error) {
      answer = Object(error);
    }
    flyingBytes -= bytes;
    for (const entry of batch) entry.flying = false;
    if (status != 202 || answer.rejected?.[0]) attempt(() => onError(answer));
    // A 422 keeps them too, in the quarantine.
    const isKept = /202|422/.test(status);
    if (batch[1] && (status == 413 || answer.reason == "no_credential")) {
      // Too much, or one can't be read, and then nor can the key: halves tell which.
      bytesMax = bytes / 2;
    } else if (isKept || /^4(?!08|29)/.test(status)) {
      failures = 0;
      bytesMax = BODY_BYTES_MAX;
      queue = queue.filter((entry) => !batch.includes(entry));
      for (const entry of batch) tell(entry, isKept ? "durable" : "lost");
      if (isKept) lose(reported, -1);
      else lose({ ["http_" + status]: batch.length });
    } else {
      failures++;
      notBefore = performance.now() + Math.min(wait | 0, 3600) * 1e3;
    }
    next();
  };

  /** Take over what a forwarder has left, and keep its lock as long as this page is there: nobody else then sends it. */
  const own = (other) => {
    const load = (lock) => {
      // Without locks a live tab's events may be taken, so only where none wait: or tabs would copy each other's for ever.
      if (lock && other != place && (lock.name || !queue[0])) attempt(() => {
        const [entries, counts] = parse(store[other]);
        for (const entry of entries) {
          entry.flying = false;
          // The server knows an id for 7 days: what may have arrived and is almost as old could count twice.
          if (entry.at > Date.now() - 5e8) queue.push(entry);
          else lose({ expired: 1 });
        }
        // In this order: the room that was theirs is needed to keep them.
        delete store[other];
        lose(counts);
        next();
      });
      return lock && new Promise((resolve) => on("pagehide", resolve));
    };
    // Without locks, several tabs may send the same: its id lets it count once. `attempt` swallows a refusal.
    navigator.locks?.request(other, { ifAvailable: true }, load).catch(attempt) ?? load(1);
  };

  const adopt = () => {
    own(place);
    for (const other in store) if (other.startsWith(prefix)) own(other);
    flush();
  };

  const on = addEventListener;

  const forwarder = {
    ignored: 0,
    flush: () => flush(),
    stop: () => {
      origin = null;
    },
  };

  try {
    origin = new URL(new URL(origin).origin).origin;
    endpoint ??= new URL("api/v1/events", import.meta.url);
    prefix = "embedsink " + [endpoint, origin, ""];
    place = prefix + uuid();
    on("message", take);
    if (recordActions) on("embedsink:action", take);
    on("online", adopt);
    on("pageshow", adopt);
    on("pagehide", flush);
    on("visibilitychange", () => (document.hidden ? flush(true) : adopt()));
    adopt();
  } catch (error) {
    attempt(() => onError(error));
  }
  return forwarder;
};

for (const { src, dataset } of document.scripts) {
  const { viewer, tenant, deployment, ...options } = dataset;
  if (src == import.meta.url && options.key)
    forward({ ...options, context: { viewer, tenant: tenant || undefined, deployment: +deployment || undefined } });
}
