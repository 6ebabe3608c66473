// Takes the events of an embed out of `postMessage` and delivers them to embedsink. docs/browser.md says how to add it and
// what it promises, forwarder.d.ts has its types. Nothing in here may throw into the host page.
//
//     message ─▶ take ─▶ queue, and localStorage until it is durable ─▶ flush ─▶ 202: forgotten; or else
//                             ▲ own: what closed pages have left                 sent again, or counted in lost
//
// scripts/minify makes what is served: no comments, short names. Properties keep theirs, so there are few. What can stand in
// any order stands in one that compresses well: read `take`, at the end, first.

/** @type {typeof import("./forwarder").forward} */
export const forward = (options) => {
  const { parse, stringify } = JSON;
  // Browsers allow 64 KiB of `keepalive` bodies at once; what is around the events has to fit in too.
  const BODY_BYTES_MAX = 6e4;

  /** Do what may fail without consequence for an event. */
  const attempt = (action) => {
    try {
      return action();
    } catch {}
  };

  let { recordActions, iframe, onError = console.warn, onEvent, key, context, endpoint, origin, serviceName = "svc" } =
    attempt(() => ({ ...options })) ?? {};

  // Each blob's address ends in a UUID (File API, 8.3.1), also on pages of plain HTTP, which have no `randomUUID`. It is
  // kept until the page ends, so one has to do: its last 8 digits count.
  const stem = URL.createObjectURL(new Blob()).slice(-36, -8);
  let made = 1e7;
  const uuid = () => stem + made++;

  // Where the browser denies storage, an object that lives as long as the page.
  const store = attempt(() => localStorage) ?? {};
  const sessions = new WeakMap();
  const named = { __proto__: null };
  // Each has its `context` with the key, and the event as `text`, both JSON, the `size` of that, when it came: `at`, and
  // whether it is `sent` and not answered yet.
  let queue = [];
  let lost = {};
  let flyingBytes = 0;
  let bytesMax = BODY_BYTES_MAX;
  // After a failure, `timer` tries again; until then nothing else does, but what knows better: a network that is back, a
  // page that comes to the front or leaves, the host. They too wait while the server `asked` for it.
  let pause = 0;
  let prefix, asked, wasLeft, isSaved, timer, place;

  /** Keep what waits beyond this page, and say how long it is. A full storage keeps what it has. */
  const save = () => {
    const kept = stringify([lost, ...queue]);
    attempt(() => {
      isSaved = 0;
      if (kept[4]) isSaved = store[place] = kept;
      else delete store[place];
    });
    return kept.length;
  };

  /** Count events that are given up, by reason. The counts go with the next delivery; what it has reported is taken off. */
  const lose = (counts, sign = 1) => {
    // What a host has added to the prototype of all objects is no count.
    for (const reason in counts)
      if (!((lost[reason] = (lost[reason] | 0) + sign * counts[reason]) > 0)) delete lost[reason];
    save();
  };

  const on = addEventListener;

  /** An event's fate: durable, or lost for a reason. */
  const settle = (entry, reason) => {
    queue = queue.filter((other) => other != entry);
    tell(entry, reason ? "lost" : "durable");
    if (reason) lose({ [reason]: 1 });
  };

  const tell = (entry, stage) => attempt(() => onEvent(parse(entry.text), stage));

  const forwarder = {
    ignored: 0,
    flush: () => flush(),
    stop: () => {
      origin = null;
    },
  };

  /** Send what waits: one request at a time, but as much as the browser lets out when the page may be leaving. */
  const flush = async (isLeaving) => {
    if (wasLeft && isSaved && !store[place]) {
      // While this page was kept alive, another one has taken over what it had saved, and told what was lost.
      queue = [];
      lost = {};
    }
    if ((flyingBytes && !isLeaving) || asked) return;
    // Not by a page that leaves: it hears no answer, and the next one would report them again.
    const reported = flyingBytes || isLeaving ? {} : { ...lost };
    const batch = [];
    let bytes = 0;
    let status, wait, answer;
    for (const entry of queue) {
      if (!entry.sent)
        if (entry.at < Date.now() - 5e8) {
          // The server knows an id for 7 days: what may have arrived and is almost as old could count twice.
          settle(entry, "expired");
        } else if (
          entry.context == (batch[0] ?? entry).context &&
          (flyingBytes + entry.size < bytesMax || !(isLeaving || bytes))
        ) {
          flyingBytes += entry.size;
          entry.sent = 1;
          bytes += entry.size;
          batch.push(entry);
          tell(entry, "sent");
        }
    }
    if (!bytes) return;
    try {
      // A string goes as text/plain, with the key in it: so browsers don't ask first, which a page that leaves can't await.
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
      if (isLeaving) flush(1);
      const response = await request;
      status = response.status;
      wait = response.headers.get("retry-after");
      answer = Object(await response.json());
    } catch (error) {
      answer = Object(error);
    }
    flyingBytes -= bytes;
    timer = asked = clearTimeout(timer);
    // An empty list equals "", and is all that an unblemished 202 has.
    if (answer.rejected != "") attempt(() => onError(answer));
    // A 422 keeps them too, in the quarantine.
    const isKept = /202|422/.test(status);
    // Too much at once; or one that can't be read, and then nor can the key.
    const isUnreadable = status == 413 || answer.reason == "no_credential";
    if (batch[1] && isUnreadable) {
      // Halves tell which.
      bytesMax = bytes / 2;
    } else if (isKept || /^4(?!08|29)/.test(status)) {
      pause = 0;
      bytesMax = BODY_BYTES_MAX;
      if (isKept) lose(reported, -1);
      for (const entry of batch) settle(entry, !isKept && (isUnreadable ? "unreadable" : "http_" + status));
      save();
    } else {
      pause = Math.min(pause * 2 || 1e3, 3e4);
      asked = Math.min(wait | 0, 3600) * 1e3;
      timer = setTimeout(() => flush((timer = asked = 0)), Math.max(asked, (1 + Math.random()) * pause));
    }
    for (const entry of batch) entry.sent = 0;
    next();
  };

  const next = () => {
    if (timer) return;
    if (queue[9]) flush();
    else if (queue[0]) setTimeout(() => timer || flush(), 1e3);
  };

  const adopt = () => {
    own(place);
    for (const other in store) if (other.startsWith(prefix)) own(other);
    flush();
  };

  /** Take over what a forwarder has left, and keep its lock as long as this page is there: nobody else then sends it. */
  const own = (other) => {
    const load = (lock) => {
      if (lock) {
        // Without locks a live tab's events may be taken, so only where none wait: or tabs would copy each other's for ever.
        if (other != place && (lock.name || !queue[0]))
          attempt(() => {
            const [counts, ...entries] = parse(store[other]);
            for (const entry of entries) {
              entry.sent = 0;
              queue.push(entry);
            }
            // In this order: the room that was theirs is needed to keep them.
            delete store[other];
            lose(counts);
            next();
          });
        return new Promise((resolve) => on("pagehide", resolve));
      }
    };
    // Without locks, several tabs may send the same: its id lets it count once. `attempt` swallows a refusal.
    navigator.locks?.request(other, { ifAvailable: 1 }, load).catch(attempt) ?? load(1);
  };

  /** Return the session that the last page of this tab left in `slot`, or a new one; leave it there for the next page. */
  const begin = (slot, id, forget) => {
    // It lies there only between two pages: a tab that is duplicated, and a second frame, find nothing to go on with.
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

  /** Listens to messages, and to what actions.js tells of actions. */
  const take = (event) => {
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
      // For other forwarders of this page: a second element or import would count it twice.
      event[prefix] = isEvent = 1;
      const isReady = data.type == serviceName + ":event:ready";
      let session = sessions.get(source);
      if (!session || isReady) {
        const src = (iframe ?? [...document.querySelectorAll("iframe")].find((one) => one.contentWindow == source))?.src;
        // The address holds a credential. A hash of 32 bits lets a reload go on with its session, and stays in this tab.
        const slot =
          /[?&]session=/.test(src) &&
          prefix + [...src].reduce((hash, letter) => (hash * 31 + letter.codePointAt()) | 0, 0);
        if (!slot || session?.slot != slot)
          sessions.set(source, (session = begin(slot, uuid(), () => sessions.delete(source))));
      }
      if (isReady) {
        const { deploymentId, embedTenant } = data.payload ?? {};
        // Of another type, they would have every event of the context rejected.
        session.known = {
          deployment: deploymentId === +deploymentId ? deploymentId : null,
          tenant: embedTenant === embedTenant + "" ? embedTenant : null,
        };
      }
      const host = parse(stringify({ ...context }));
      // Of another type, it would have every event of the context rejected.
      const name = host.session && host.session + "";
      // One that the host names is numbered by its name: all iframes count on, and so does the next page of this tab.
      const numbered = name ? (named[name] ??= begin(prefix + "=" + name, name, () => delete named[name])) : session;
      const text = stringify({ ...data, id: uuid(), seq: numbered.seq++ });
      const entry = {
        // With the key, since another page with another one may have to send it.
        context: stringify({
          key,
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
      tell(entry, "seen");
      queue.push(entry);
      // localStorage has 5 MiB, and it is the host page's.
      if (save() > 5e5) settle(entry, "queue_overflow");
      else next();
    } catch {
      // What is no event of the embed is ignored. What is one and can't be JSON (a BigInt, a cycle) is lost.
      if (isEvent) lose({ not_json: 1 });
      else forwarder.ignored++;
    }
  };

  try {
    origin = new URL(new URL(key && origin).origin).origin;
    endpoint ||= new URL("api/v1/events", import.meta.url);
    prefix = "embedsink " + endpoint + " ";
    place = prefix + uuid();
    on("pagehide", () => {
      flush(1);
      wasLeft = 1;
    });
    if (/true/.test(recordActions)) on("embedsink:action", take);
    on("pageshow", adopt);
    on("message", take);
    on("online", adopt);
    on("visibilitychange", () => (document.hidden ? flush(1) : adopt()));
    adopt();
  } catch (error) {
    attempt(() => onError(error));
  }
  return forwarder;
};

// Not `document.scripts`, which an `<img name="scripts">` would replace.
for (const { src, dataset } of document.querySelectorAll("script"))
  if (src == import.meta.url)
    forward({
      ...dataset,
      context: {
        deployment: +dataset.deployment || undefined,
        session: dataset.session,
        tenant: dataset.tenant || undefined,
        viewer: dataset.viewer,
      },
    });
