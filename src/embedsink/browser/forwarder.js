// The forwarder receives an embed's events through `postMessage` and delivers them to embedsink. docs/browser.md describes
// its use and its guarantees, and forwarder.d.ts has its types. Nothing in this module may throw into the host page.
//
//     message ─▶ receive ─▶ queue, also in localStorage ─▶ flush ─▶ 202: delete the event
//                             ▲                                     otherwise: retry, or count it in `lost`
//                             takeOverQueues: queues of closed pages
//
// scripts/minify writes the served file, without comments and with short local names. It can't shorten properties, so there
// are few. Declarations are in the order that compresses best: read `receive`, near the end, first.

/** @type {typeof import("./forwarder").forward} */
export const forward = (options) => {
  const { parse, stringify } = JSON;
  // Browsers limit all pending `keepalive` bodies to 64 KiB. The rest of the body must fit too, not only the events.
  const BODY_BYTES_MAX = 6e4;

  /** Run an action and ignore its exceptions. */
  const attempt = (action) => {
    try {
      return action();
    } catch {}
  };

  let { recordActions, iframe, onError = console.warn, onEvent, key, context, endpoint, origin, serviceName = "svc" } =
    attempt(() => ({ ...options })) ?? {};

  // Pages on plain HTTP have no `randomUUID`, but each blob URL ends in a UUID (File API, 8.2). A blob URL lives until the
  // page closes, so the forwarder creates one and replaces its last 8 digits with a counter.
  const uuidPrefix = URL.createObjectURL(new Blob()).slice(-36, -8);
  let uuidCount = 1e7;
  const uuid = () => uuidPrefix + uuidCount++;

  // If the browser denies access to storage, use an object that lives as long as the page.
  const store = attempt(() => localStorage) ?? {};
  const sessions = new WeakMap();
  const namedSessions = { __proto__: null };
  // The fields of an entry: `context` is the JSON of the key and the context, `text` is the JSON of the event, `size` is the
  // number of bytes of `text`, and `at` is the time of queueing. `sent` is 1 while a request with the entry is in flight.
  let queue = [];
  let lost = {};
  let inFlightBytes = 0;
  let bytesMax = BODY_BYTES_MAX;
  // After a failure, `timer` retries. A retry is earlier if the network returns, the page is shown or hidden, or the host calls
  // `flush`. But nothing is sent while `retryAfterMs` is set, from the server's `Retry-After`.
  let backoffMs = 0;
  let prefix, retryAfterMs, hasLeftPage, isSaved, timer, queueName;

  /** Write the queue to storage as JSON, and return the length of the JSON. A full storage keeps its old content. */
  const save = () => {
    const json = stringify([lost, ...queue]);
    attempt(() => {
      isSaved = 0;
      // Without events and losses, the JSON is `[{}]`, four characters.
      if (json[4]) isSaved = store[queueName] = json;
      else delete store[queueName];
    });
    return json.length;
  };

  /** Add counts of lost events, by reason. The next delivery reports them; `sign` -1 subtracts reported counts. */
  const countLost = (counts, sign = 1) => {
    // `| 0` and `> 0` drop properties that the host added to `Object.prototype`.
    for (const reason in counts)
      if (!((lost[reason] = (lost[reason] | 0) + sign * counts[reason]) > 0)) delete lost[reason];
    save();
  };

  const on = addEventListener;

  /** Remove an event from the queue: it is durable, or lost for a reason. */
  const removeFromQueue = (entry, reason) => {
    queue = queue.filter((queued) => queued != entry);
    report(entry, reason ? "lost" : "durable");
    if (reason) countLost({ [reason]: 1 });
  };

  const report = (entry, stage) => attempt(() => onEvent(parse(entry.text), stage));

  const forwarder = {
    ignored: 0,
    flush: () => flush(),
    stop: () => {
      origin = null;
    },
  };

  /** Send queued events: one request at a time, but as many as the browser allows if the page may be about to close. */
  const flush = async (isLeaving) => {
    if (hasLeftPage && isSaved && !store[queueName]) {
      // While this page was in the back/forward cache, another page took over its queue and reported its losses.
      queue = [];
      lost = {};
    }
    if ((inFlightBytes && !isLeaving) || retryAfterMs) return;
    // A page that closes gets no response, so it reports no losses: the next page would report them again.
    const reported = inFlightBytes || isLeaving ? {} : { ...lost };
    const batch = [];
    let bytes = 0;
    let status, retryAfter, responseBody;
    for (const entry of queue) {
      if (!entry.sent)
        if (entry.at < Date.now() - 5e8) {
          // The server remembers ids for 7 days. An event almost that old could count twice, since it may have arrived.
          removeFromQueue(entry, "expired");
        } else if (
          // An event above the limit is sent alone, but not by a page that may be about to close.
          entry.context == (batch[0] ?? entry).context &&
          (inFlightBytes + entry.size < bytesMax || !(isLeaving || bytes))
        ) {
          inFlightBytes += entry.size;
          entry.sent = 1;
          bytes += entry.size;
          batch.push(entry);
          report(entry, "sent");
        }
    }
    if (!bytes) return;
    try {
      // A string is sent as text/plain, with the key in the body. That avoids a preflight, for which a closing page has no time.
      const body = stringify({
        ...parse(batch[0].context),
        events: batch.map(({ text }) => parse(text)),
        lost: reported,
        sentAt: Date.now(),
      });
      const request =
        isLeaving && !("keepalive" in Request.prototype)
          ? navigator.sendBeacon(endpoint, body)
          : fetch(endpoint, {
              signal: AbortSignal.timeout?.(3e4),
              method: "POST",
              keepalive: bytes < BODY_BYTES_MAX,
              body,
            });
      if (isLeaving) flush(1); // Send the next batch now: this page may get no response.
      const response = await request;
      status = response.status;
      retryAfter = response.headers.get("retry-after");
      responseBody = Object(await response.json());
    } catch (error) {
      responseBody = Object(error);
    }
    inFlightBytes -= bytes;
    timer = retryAfterMs = clearTimeout(timer);
    // A 202 without rejections has an empty list, which equals "".
    if (responseBody.rejected != "") attempt(() => onError(responseBody));
    // A 422 stores the events too, in the quarantine.
    const isStored = /202|422/.test(status);
    // The body is too large, or it can't be parsed, so that the server finds no key in it.
    const isUnreadable = status == 413 || responseBody.reason == "no_credential";
    if (batch[1] && isUnreadable) {
      // Split the batch to find the event.
      bytesMax = bytes / 2;
    } else if (isStored || /^4(?!08|29)/.test(status)) {
      backoffMs = 0;
      bytesMax = BODY_BYTES_MAX;
      if (isStored) countLost(reported, -1);
      for (const entry of batch) removeFromQueue(entry, !isStored && (isUnreadable ? "unreadable" : "http_" + status));
      save();
    } else {
      backoffMs = Math.min(backoffMs * 2 || 1e3, 3e4);
      retryAfterMs = Math.min(retryAfter | 0, 3600) * 1e3;
      timer = setTimeout(() => flush((timer = retryAfterMs = 0)), Math.max(retryAfterMs, (1 + Math.random()) * backoffMs));
    }
    for (const entry of batch) entry.sent = 0;
    scheduleFlush();
  };

  /** Send the queue immediately if it has ten events, and otherwise after a second, unless a retry is scheduled. */
  const scheduleFlush = () => {
    if (timer) return;
    if (queue[9]) flush();
    else if (queue[0]) setTimeout(() => timer || flush(), 1e3);
  };

  /** Take over the queues of closed pages, and send the events. */
  const takeOverQueues = () => {
    takeOverQueue(queueName);
    for (const otherQueue in store) if (otherQueue.startsWith(prefix)) takeOverQueue(otherQueue);
    flush();
  };

  /** Take over the queue of a closed page, and retain its lock until this page closes, so that no other page sends it. */
  const takeOverQueue = (otherQueue) => {
    const load = (lock) => {
      if (lock) {
        // Without locks (`lock` is 1), the queue may be a live tab's. A page takes a queue over only while its own is empty.
        // Otherwise, tabs would copy each other's queues forever.
        if (otherQueue != queueName && (lock.name || !queue[0]))
          attempt(() => {
            const [counts, ...entries] = parse(store[otherQueue]);
            for (const entry of entries) {
              entry.sent = 0;
              queue.push(entry);
            }
            // Delete first: saving the entries needs the space that they occupied.
            delete store[otherQueue];
            countLost(counts);
            scheduleFlush();
          });
        return new Promise((resolve) => on("pagehide", resolve));
      }
    };
    // Without locks, several tabs may send an event; its id makes it count once. `attempt` ignores a rejection.
    navigator.locks?.request(otherQueue, { ifAvailable: 1 }, load).catch(attempt) ?? load(1);
  };

  /** Return the session that the previous page of this tab stored in `slot`, or a new one. Store it on `pagehide`. */
  const openSession = (slot, id, forget) => {
    // The session is stored only between two pages, so a duplicated tab or a second frame starts its own.
    const session = attempt(() => slot && [parse(sessionStorage[slot]), delete sessionStorage[slot]][0]) || {
      slot,
      id,
      seq: 0,
    };
    if (slot)
      on("pagehide", () => attempt(() => (sessionStorage[slot] = stringify(session)) && forget()), {
        once: 1,
      });
    return session;
  };

  /** Queue an event from a message, or an action that actions.js has posted. */
  const receive = (event) => {
    let isEvent;
    try {
      const { data, source } = event;
      if (
        event.origin !== origin ||
        data.source !== serviceName + "-embed" ||
        data.direction !== (event.type == "message" ? "event" : "action") ||
        (iframe && iframe.contentWindow !== source) ||
        event[prefix]
      )
        throw 0;
      // Mark the message for other forwarders on this page: a second element or import would count it twice.
      event[prefix] = isEvent = 1;
      const isReady = data.type == serviceName + ":event:ready";
      let session = sessions.get(source);
      if (!session || isReady) {
        const src = (iframe ?? [...document.querySelectorAll("iframe")].find((one) => one.contentWindow == source))?.src;
        // The URL contains a credential. Its 32-bit hash lets a reload continue the session, and never leaves this tab.
        const slot =
          /[?&]session=/.test(src) &&
          prefix + [...src].reduce((hash, letter) => (hash * 31 + letter.codePointAt()) | 0, 0);
        if (!slot || session?.slot != slot)
          sessions.set(source, (session = openSession(slot, uuid(), () => sessions.delete(source))));
      }
      if (isReady) {
        const { deploymentId, embedTenant } = data.payload ?? {};
        // The server rejects every event of a context whose fields have other types.
        session.known = {
          deployment: deploymentId === +deploymentId ? deploymentId : null,
          tenant: embedTenant === embedTenant + "" ? embedTenant : null,
        };
      }
      const { optedOut, ...host } = parse(stringify({ ...context }));
      // The server rejects every event of a context whose session is not a string.
      const name = host.session && host.session + "";
      // A named session has one sequence of numbers for all iframes, which the next page in this tab continues.
      const numbered = name
        ? (namedSessions[name] ??= openSession(prefix + "=" + name, name, () => delete namedSessions[name]))
        : session;
      const text = stringify({ ...data, id: uuid(), seq: numbered.seq++ });
      const entry = {
        // Include the key: a page with another key may have to send the event.
        context: stringify({
          key,
          // The server rejects every event of a delivery whose `optedOut` is not a boolean.
          optedOut: optedOut ? true : undefined,
          context: {
            page: location.origin + location.pathname,
            ...session.known,
            ...host,
            session: numbered.id,
          },
        }),
        text,
        size: new Blob([text]).size,
        at: Date.now(),
      };
      report(entry, "seen");
      queue.push(entry);
      // localStorage has 5 MiB, which the host page needs too.
      if (save() > 5e5) removeFromQueue(entry, "queue_overflow");
      else scheduleFlush();
    } catch {
      // Ignore a message that is not an event of the embed. Count an event that JSON can't represent (a BigInt, a cycle) as lost.
      if (isEvent) countLost({ not_json: 1 });
      else forwarder.ignored++;
    }
  };

  try {
    origin = new URL(new URL(key && origin).origin).origin;
    endpoint ||= new URL("api/v1/events", import.meta.url);
    prefix = "embedsink " + endpoint + " ";
    queueName = prefix + uuid();
    on("pagehide", () => {
      flush(1);
      hasLeftPage = 1;
    });
    if (/true/.test(recordActions)) on("embedsink:action", receive);
    on("pageshow", takeOverQueues);
    on("message", receive);
    on("online", takeOverQueues);
    on("visibilitychange", () => (document.hidden ? flush(1) : takeOverQueues()));
    takeOverQueues();
  } catch (error) {
    attempt(() => onError(error));
  }
  return forwarder;
};

// Don't use `document.scripts`: an `<img name="scripts">` replaces it.
for (const { src, dataset } of document.querySelectorAll("script"))
  if (src == import.meta.url)
    forward({
      ...dataset,
      context: {
        deployment: +dataset.deployment || undefined,
        // The attribute alone is an opt-out too.
        optedOut: (dataset.optedOut ?? "false") != "false",
        session: dataset.session,
        tenant: dataset.tenant || undefined,
        viewer: dataset.viewer,
      },
    });
