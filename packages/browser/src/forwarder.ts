// The forwarder receives an embed's events through `postMessage` and delivers them to embedsink. docs/browser.md describes
// its use and its guarantees. Nothing in this module may throw into the host page.
//
//     message ─▶ receive ─▶ queue of deliveries, also in localStorage ─▶ send ─▶ 202: delete the delivery
//                             ▲                                                otherwise: retry, or count its events in `lost`
//                             adopt: deliveries of closed pages
//
// scripts/build-browser writes the served file, with short names for local variables and for the fields of `Delivery`.
// Declarations are in the order that compresses best: read `receive`, near the end, and `accept` first.

import type { Envelope, Message, VendorEvent } from "./events.js";

/** The host page's context for events. */
export interface Context {
  /** The viewer, as the host identifies them. Use an id, not a name or an email address. */
  viewer?: string | null;
  /** The host's own session id, such as that of a test. By default, the forwarder creates a session for each iframe. */
  session?: string | null;
  /** Overrides the tenant of the embed's `ready` event. */
  tenant?: string | null;
  /** Overrides the deployment of the embed's `ready` event. */
  deployment?: number | null;
  /** Overrides the URL of the page, which is sent without query and fragment. */
  page?: string | null;
  /** The viewer has opted out. If the server's privacy rules say so, it stores the events without personal data. */
  optedOut?: boolean | null;
}

/**
 * The stage of an event:
 *
 * - `seen`: The event passed the listener's rules.
 * - `sent`: A request with the event begins. Each retry repeats this stage.
 * - `durable`: The event is on the server's disk, accepted or quarantined.
 * - `lost`: The event is counted in the `lost` field of the next delivery.
 */
export type Stage = "seen" | "sent" | "durable" | "lost";

/** A response that reports a problem: problem details (RFC 9457), or a 202 that lists rejections. */
export interface Problem {
  reason?: string;
  title?: string;
  status?: number;
  detail?: string;
  accepted?: number;
  rejected?: { index: number; id: string | null; reason: string; detail: string }[];
}

export interface Options<Service extends string = "svc"> {
  /** The tenant's origin, such as `https://tenant.example.com`. Messages from other origins are ignored. */
  origin: string;
  /** An ingest key. Every visitor can read it, so restrict it to your page's origin. */
  key: string;
  /** The URL that receives the events. Default: `api/v1/events`, relative to this module. */
  endpoint?: string | URL;
  /** The object is read at each event, and a function is called at each event. So the values may change at any time. */
  context?: Context | (() => Context);
  /** The vendor's service name in identifiers. The default `svc` means `svc-embed` and `svc:event:view`. */
  serviceName?: Service;
  /** Listen to this iframe only. Default: every window of the origin. */
  iframe?: HTMLIFrameElement;
  /**
   * Convert a message of another vendor's embed to events. It is called with the `data` and the `source` of each message from
   * `origin`, and the messages of our own protocol are then ignored.
   */
  adapt?: (data: unknown, source: MessageEventSource | null) => VendorEvent[];
  /** The name of the embed's vendor, such as `looker`. Default: the vendor of the service itself. */
  vendor?: string;
  /**
   * Change or drop an event before it is stored or sent. Called with a copy of the event. Returns what may be sent, or null to
   * drop the event, which is then not counted. If it throws an exception, the event is counted as lost.
   */
  beforeSend?: (message: Message<Service>) => Message<Service> | null;
  /** Also forward the actions that `send` of actions.js posts. */
  recordActions?: boolean;
  /** Called at each stage of an event. Its exceptions are ignored. */
  onEvent?: (envelope: Envelope<Service>, stage: Stage) => void;
  /**
   * Called with a problem that the server reports, with an Error if there was no response, and with the exceptions of
   * `beforeSend` and `context`. Called at once with a TypeError if the key is missing or the origin is invalid. Its exceptions
   * are ignored.
   */
  onError?: (problem: Problem | Error) => void;
}

export interface Forwarder {
  /** The number of messages that did not pass the listener's rules. */
  readonly ignored: number;
  /** Forward an event that the embed does not post as a message, for example of the vendor's SDK. */
  track(event: VendorEvent): void;
  /** Send queued events now, unless a request is in flight or `Retry-After` has not passed. */
  flush(): void;
  /** Accept no more events, and remove all listeners. Queued events are still sent. */
  destroy(): void;
  /** The same as `destroy`. */
  stop(): void;
}

/** The messages that the inline script of docs/browser.md has kept. */
declare const embedsink: MessageEvent[] | undefined;

/** Whether this is the npm package. build.js sets it (docs/decisions/0036-one-source-for-browser-modules.md). */
declare const IN_PACKAGE: boolean;

/** A session of the embed, as it is stored for the next page. */
interface Session {
  /** Its key in sessionStorage, unless it ends with the page. */
  slot?: string | false;
  id: string;
  /** The number of its next event. */
  seq: number;
  /** The values of its `ready` event. */
  known?: { deployment: number | null; tenant: string | null };
}

/** Events that are sent in one request. */
interface Delivery {
  /** The key in localStorage. */
  name: string;
  /** The JSON of the key and the context. */
  head: string;
  /** The JSON of each event. */
  texts: string[];
  /** The size of the events. */
  bytes: number;
  /** The time of the last event. */
  time: number;
  /** The number of stored events. */
  saved: number;
  /** 1 while a request with the delivery is in flight. */
  sent?: number;
}

/** The number of a timer; 0 or undefined without one. */
type Timer = number | undefined;
/** Numbers of events by reason. */
type Counts = Record<string, number>;

/** Forward the events of embeds until the page closes. Never throws: `onError` receives errors in the options. */
export const forward = <Service extends string = "svc">(options: Options<Service>): Forwarder => {
  const { parse, stringify } = JSON;
  // Browsers limit all pending `keepalive` bodies to 64 KiB. The rest of the body must fit too, not only the events.
  const BODY_BYTES_MAX = 6e4;
  // The queue in memory has room for a burst of more than 10,000 events. localStorage has about 5 MiB for the whole site.
  const QUEUE_BYTES_MAX = 1e7;
  const STORED_BYTES_MAX = 25e5;
  // A page renews its record every 5 s while it has events. If the record is older than this, other pages adopt the events.
  const LEASE_MS = 1e4;

  /** Run an action and ignore its exceptions. */
  const attempt = <Result>(action: () => Result): Result | undefined => {
    try {
      return action();
    } catch {}
  };

  /** Forget what another page has adopted, because this page was in the back/forward cache or its timers were slow. */
  const forgetAdopted = () => {
    // Other pages adopt nothing before the lease ends. If entries are missing then, the host has cleared the storage.
    const mayBeAdopted = leaseEndsAt < now();
    if (mayBeAdopted && !(owner in store)) {
      lost = {};
      leaseEndsAt = 1 / 0;
    }
    for (const delivery of queue)
      if (delivery.saved && !(delivery.name in store)) {
        if (mayBeAdopted) delivery.texts.splice(0, delivery.saved);
        delivery.saved = 0;
      }
    queue = queue.filter(({ texts }) => texts[0]);
  };

  let {
    recordActions,
    iframe,
    onError = console.warn,
    onEvent,
    key,
    context,
    endpoint,
    origin,
    serviceName = "svc",
    adapt,
    vendor,
    beforeSend,
  } = attempt(() => ({ ...options })) ?? ({} as Partial<Options<Service>>);

  // Pages on plain HTTP have no `randomUUID`, but each blob URL ends in a UUID (File API, 8.2). A blob URL lives until the
  // page closes, so the forwarder creates one and replaces its last 8 digits with a counter.
  const uuidPrefix = URL.createObjectURL(new Blob()).slice(-36, -8);
  let count = 1e7;
  const uuid = () => uuidPrefix + count++;

  const now = () => Date.now();
  const listening = new AbortController();
  const on = (type: string, listener: (event: any) => void) => addEventListener(type, listener, listening);

  // If the browser denies access to storage, use an object that lives as long as the page.
  const store: Record<string, any> = attempt(() => localStorage) ?? {};
  let sessions = new WeakMap<object, Session>();
  /** The iframes of chats, by `chatId`. */
  const chats: Map<unknown, object> | false = IN_PACKAGE && new Map();
  // The sessions to store for the next page, by their key in sessionStorage.
  let slots: Record<string, Session> = {};
  let queue: Delivery[] = [];
  let lost: Counts = {};
  let inFlightBytes = 0;
  let eventsMax = 1 / 0;
  // After a failure, `timer` retries. A retry is earlier if the network returns, the page is shown or hidden, or the host calls
  // `flush`. But nothing is sent while `retryAfterMs` is set, from the server's `Retry-After`.
  let backoffMs = 0;
  let savedAt = 0;
  // How often the page has returned from the back/forward cache. Firefox never settles the requests that were in flight then.
  let returnCount = 0;
  let marker: string, prefix: string, owner: string, leaseEndsAt: number;
  let retryAfterMs: number | undefined, hasLeft: number | undefined;
  let timer: Timer, saveTimer: Timer, leaseTimer: Timer, adoptTimer: Timer;

  const byteCount = (texts: string | string[]) => (texts + "").replace(/[^\0-\x7f]/g, "xxx").length;
  const queuedBytes = () => queue.reduce((sum, { bytes }) => sum + bytes, 0);

  /** Return whether a key of a storage belongs to a forwarder to the same server. */
  const isOurs = (name: string) => name.startsWith(prefix) || name.startsWith(marker);

  /** Return whether the viewer consents. After a refusal, forget all events and sessions, also those of other pages. */
  const hasConsent = () => {
    if (!IN_PACKAGE) return true;
    const { consent = true } = options as { consent?: unknown };
    const answer = attempt(() => read(consent));
    if (answer === false)
      attempt(() => {
        queue = [];
        slots = {};
        lost = {};
        sessions = new WeakMap();
        for (const area of [store, sessionStorage]) for (const name in area) if (isOurs(name)) delete area[name];
      });
    return answer === true;
  };

  /** Add an event to the last delivery, or to a new one. A delivery has one context, and less than 100 s between two events. */
  const enqueue = (head: string, text: string, at: number) => {
    const bytes = byteCount(text);
    let last = queue.at(-1);
    if (
      !last ||
      last.sent ||
      last.head != head ||
      last.bytes + bytes > BODY_BYTES_MAX ||
      // If the clock was set back, the delivery would have the times of two clocks.
      !(at >= last.time && at < last.time + 1e5)
    )
      queue.push((last = { name: owner + count++, head, texts: [], bytes: 0, saved: 0, time: at }));
    last.time = at;
    last.bytes += bytes;
    last.texts.push(text);
  };

  const warn = (problem: Problem | Error) => attempt(() => onError(problem));

  /** Return the value of an option that may be a function. */
  const read = (option: any) => (option?.call ? option() : option);

  /** Renew the record while there are events. */
  const renew = () => {
    forgetAdopted();
    if (!leaseTimer && queue[0] && !hasLeft) {
      record();
      leaseTimer = setTimeout(() => {
        leaseTimer = 0;
        renew();
      }, LEASE_MS / 2);
    }
  };

  /** Store the losses of this page, and the time. Later losses fit into the padding. */
  const record = (at = now()) =>
    hasConsent() &&
    attempt(() => {
      store[owner] = stringify([lost, at]).padEnd(200);
      leaseEndsAt = at + LEASE_MS;
    });

  /** Store the events that are not stored yet. A full storage keeps its old content. */
  const save = () => {
    saveTimer = clearTimeout(saveTimer) as undefined;
    if (IN_PACKAGE && !hasConsent()) return;
    savedAt = now();
    renew();
    let bytes = 0;
    for (const delivery of queue)
      if ((bytes += delivery.bytes) < STORED_BYTES_MAX && delivery.saved != delivery.texts.length)
        attempt(() => {
          store[delivery.name] = [delivery.time, delivery.head, ...delivery.texts].join("\n");
          delivery.saved = delivery.texts.length;
        });
  };

  /** Send the events, and leave the sessions and the rest of the queue to the next page. */
  const leave = (isLeaving?: unknown) => {
    save();
    flush(isLeaving);
    hasLeft = 1;
    attempt(() => {
      for (const slot of Object.keys(slots)) sessionStorage[slot] = stringify(slots[slot]);
      sessions = new WeakMap();
      slots = {};
    });
    if (isLeaving)
      for (const delivery of queue) {
        // There was no space for these events. They are only in memory, and the next page can't send them.
        const texts = delivery.texts.splice(delivery.sent && !backoffMs ? 1 / 0 : delivery.saved);
        if (texts[0]) lose(texts, "not_stored");
      }
    // If a request is in flight, its response is lost, so the next page waits before it sends the events again.
    queue = queue.filter(({ texts }) => texts[0]);
    if (queue[0] || stringify(lost)[2]) record(inFlightBytes && !backoffMs ? now() : 0);
    else delete store[owner];
  };

  /** Remove a delivery from the queue: it is durable, or lost for a reason. */
  const remove = (delivery: Delivery, reason?: string | false) => {
    queue = queue.filter((queued) => queued != delivery);
    delete store[delivery.name];
    if (reason) lose(delivery.texts, reason);
    else report(delivery.texts, "durable");
  };

  /** Return the session that the previous page of this tab stored in `slot`, or a new one. */
  const openSession = (slot: string | false | undefined, id: string): Session => {
    // The session is stored only between two pages, so a duplicated tab or a second frame starts its own.
    const session = attempt(() => slot && [parse(sessionStorage[slot]), delete sessionStorage[slot]][0]) || {
      slot,
      id,
      seq: 0,
    };
    if (slot) slots[slot] = session;
    return session;
  };

  /** Send one delivery if no request is in flight, or as many as the browser allows if the page may be about to close. */
  const flush = (isLeaving?: unknown): void => {
    if (!hasConsent() || retryAfterMs || (inFlightBytes && !isLeaving)) return;
    forgetAdopted();
    for (const delivery of queue) {
      const { texts, bytes, time } = delivery;
      if (delivery.sent) continue;
      // The server remembers ids for 7 days. An event almost that old could count twice, since it may have arrived.
      if (time < now() - 5e8) remove(delivery, "expired");
      else if (texts.length > eventsMax) {
        const rest = texts.splice(eventsMax);
        delivery.bytes = byteCount(texts);
        delivery.saved = 0;
        queue.splice(queue.indexOf(delivery) + 1, 0, {
          ...delivery,
          name: owner + count++,
          texts: rest,
          bytes: byteCount(rest),
        });
        save();
        return flush(isLeaving);
      } else if (isLeaving ? inFlightBytes + bytes < BODY_BYTES_MAX : !inFlightBytes) send(delivery, isLeaving);
    }
  };

  /** Count events as lost for a reason. */
  const lose = (texts: string[], reason: string) => {
    countLost({ [reason]: texts.length });
    report(texts, "lost");
  };

  /** Queue an event or an action of a window. `track` passes another object if there is no window. */
  const accept = (message: any, source: object) => {
    if (!hasConsent()) return;
    let reason = "before_send";
    try {
      // A copy, because other listeners of the host page get the same object. Only what the host returns is used from here on.
      if (beforeSend && !(message = beforeSend(parse(stringify(message))))) return;
      const { optedOut, ...host } = parse(stringify({ ...read(context) }));
      reason = "not_json";
      if (chats) {
        // Feedback is tracked. It belongs to the session of the iframe with the chat.
        const { chatId } = message.payload ?? {};
        if (source == forwarder) source = chats.get(chatId) ?? (chatId && iframe?.contentWindow) ?? source;
        else if (chatId) chats.set(chatId, source);
      }
      const isReady = message.type == serviceName + ":event:ready";
      let session = sessions.get(source);
      if (!session || isReady) {
        const frames = [iframe, ...document.querySelectorAll("iframe")];
        const src = frames.find((one) => one?.contentWindow == source)?.src;
        // The URL contains a credential. Its 32-bit hash lets a reload continue the session, and never leaves this tab.
        const slot =
          /[?&]session=/.test(src as any) &&
          marker + [...src!].reduce((hash, letter) => (hash * 31 + letter.codePointAt(0)!) | 0, 0);
        if (!slot || session?.slot != slot) sessions.set(source, (session = openSession(slot, uuid())));
      }
      if (isReady) {
        const { deploymentId, embedTenant } = message.payload ?? {};
        // The server rejects every event of a context whose fields have other types.
        session.known = {
          deployment: deploymentId === +deploymentId ? deploymentId : null,
          tenant: embedTenant === embedTenant + "" ? embedTenant : null,
        };
      }
      // The server rejects every event of a context whose session is not a string.
      const name = host.session && host.session + "";
      // A named session has one sequence of numbers for all iframes, which the next page in this tab continues.
      const numbered = name ? (slots[marker + "=" + name] ?? openSession(marker + "=" + name, name)) : session;
      const text = stringify({ ...message, id: uuid(), seq: numbered.seq++ });
      report([text], "seen");
      if (queuedBytes() + text.length > QUEUE_BYTES_MAX) return lose([text], "queue_overflow");
      enqueue(
        // Include the key: a page with another key may have to send the event.
        stringify({
          key,
          // The server rejects every event of a delivery whose `optedOut` is not a boolean.
          optedOut: optedOut ? true : undefined,
          context: { page: location.origin + location.pathname, vendor, ...session.known, ...host, session: numbered.id },
        }),
        text,
        now(),
      );
      // In a burst, store many events at once.
      if (now() - savedAt > 9) save();
      else saveTimer ??= setTimeout(save, 10);
      scheduleFlush();
    } catch (error) {
      // A hook of the host failed, or JSON can't represent the event (a BigInt, a cycle), or its iframe was removed.
      countLost({ [reason]: 1 });
      warn(error as Error);
    }
  };

  const send = async (delivery: Delivery, isLeaving: unknown) => {
    // A page that closes gets no response, so it reports no losses: the next page would report them again.
    const reported = inFlightBytes || isLeaving ? {} : { ...lost };
    const { head, texts, bytes, time } = delivery;
    const sentIn = returnCount;
    let status: number | undefined, retryAfter: string | null | undefined, responseBody: any;
    inFlightBytes += bytes;
    delivery.sent = 1;
    report(texts, "sent");
    try {
      // A string is sent as text/plain, with the key in the body. That avoids a preflight, for which a closing page has no time.
      const response = await fetch(endpoint!, {
        signal: AbortSignal.timeout?.(3e4),
        method: "POST",
        // Firefox still counts the body of the previous request, so the requests of a backlog don't use `keepalive`.
        keepalive: bytes < BODY_BYTES_MAX && ((isLeaving || !queue[1]) as boolean),
        // If the clock was set back since the event, the time of sending is not before the event.
        body: `${head.slice(0, -1)},"events":[${texts}],"lost":${stringify(reported)},"sentAt":${Math.max(time, now())}}`,
      });
      status = response.status;
      retryAfter = response.headers.get("retry-after");
      responseBody = Object(await response.json());
    } catch (error) {
      responseBody = Object(error);
      // Chromium rejects the requests of a page that closes, although they arrive. Such a page runs no more timers.
      await new Promise(setTimeout as any);
    }
    if (sentIn != returnCount) return;
    inFlightBytes -= bytes;
    timer = retryAfterMs = clearTimeout(timer) as undefined;
    // A 202 without rejections has an empty list, which equals "".
    if (responseBody.rejected != "") warn(responseBody);
    // A 422 stores the events too, in the quarantine.
    const isStored = /202|422/.test(status as any);
    // The body is too large, or it can't be parsed, so that the server finds no key in it.
    const isUnreadable = status == 413 || responseBody.reason == "no_credential";
    if (texts[1] && isUnreadable) {
      // Split the delivery: one of its events may be the reason, or the server limits the events of a request.
      eventsMax = texts.length >> 1;
    } else if (isStored || /^4(?!08|29)/.test(status as any)) {
      backoffMs = 0;
      eventsMax *= isStored ? 1.1 : 1 / 0;
      if (isStored) countLost(reported, -1);
      remove(delivery, !isStored && (isUnreadable ? "unreadable" : "http_" + status));
    } else {
      backoffMs = Math.min(backoffMs * 2 || 1e3, 3e4);
      retryAfterMs = Math.min((retryAfter as any) | 0, 3600) * 1e3;
      timer = setTimeout(() => flush((timer = retryAfterMs = 0)), Math.max(retryAfterMs, (1 + Math.random()) * backoffMs));
    }
    delivery.sent = 0;
    scheduleFlush();
  };

  /** Add the events and the losses of closed pages to this page's queue, and send the queue. */
  const adopt = () => {
    // Without consent, look again later: the viewer may decide.
    let hasMore: unknown;
    if (IN_PACKAGE) hasMore = !hasConsent();
    if (hasLeft) {
      hasLeft = inFlightBytes = 0;
      returnCount++;
      for (const delivery of queue) delivery.sent = 0;
    }
    for (const name of Object.keys(IN_PACKAGE && hasMore ? {} : store)) {
      const take = () => {
        const value = store[name];
        // Delete first: saving the events needs the space that they occupied.
        delete store[name];
        attempt(() => {
          if (value[0] == "[") {
            // A record, or the queue of a version before 2026-12, whose entries have a context and a text each.
            const [counts, ...entries] = parse(value);
            countLost(counts);
            for (const { context, text, at } of entries) if (text) enqueue(context, text, at);
          } else {
            const [at, head, ...texts] = value.split("\n");
            for (const text of texts) enqueue(head, text, +at);
          }
          save();
          scheduleFlush();
        });
      };
      if (isOurs(name) && !name.startsWith(owner))
        if (
          Math.abs(attempt(() => parse(store[name.slice(0, owner.length)])[1])! - now()) < LEASE_MS ||
          queuedBytes() > 1e6
        )
          hasMore = 1;
        // Without locks, two pages may adopt an event; its id makes it count once. `attempt` ignores a rejection.
        else navigator.locks?.request(name, { ifAvailable: true }, (lock) => lock && take()).catch(attempt) ?? take();
    }
    clearTimeout(adoptTimer);
    if (hasMore) adoptTimer = setTimeout(() => hasLeft || adopt(), LEASE_MS);
    flush();
  };

  const report = (texts: string[], stage: Stage) => {
    if (onEvent) for (const text of texts) attempt(() => onEvent(parse(text), stage));
  };

  /** Add counts of lost events, by reason. The next delivery reports them; `sign` -1 subtracts reported counts. */
  const countLost = (counts: Counts, sign = 1) => {
    // `| 0` and `> 0` drop properties that the host added to `Object.prototype`.
    for (const reason in counts)
      if (!((lost[reason] = (lost[reason] | 0) + sign * counts[reason]) > 0)) delete lost[reason];
    record();
  };

  /** Queue the events of a message, or an action that actions.js has posted. */
  const receive = (event: any) => {
    try {
      // An adapter remembers what it converts.
      if (IN_PACKAGE && !hasConsent()) return;
      const { data, source, type } = event;
      if (
        event.origin !== origin ||
        (iframe && iframe.contentWindow !== source) ||
        event[marker]
      )
        throw 0;
      const isMessage = type == "message";
      const messages: any =
        isMessage && adapt
          ? adapt(data, source).map(complete)
          : data.source === serviceName + "-embed" && data.direction === (isMessage ? "event" : "action") && [data];
      // Mark the message for other forwarders on this page: a second element or import would count it twice.
      event[marker] = messages[0].source;
      for (const message of messages) accept(message, source);
    } catch {
      // Ignore a message that is not an event of the embed.
      (forwarder as { ignored: number }).ignored++;
    }
  };

  /** Complete an event of an adapter or of `track`. */
  const complete = ({ type, ...rest }: VendorEvent) => ({
    source: serviceName + "-embed",
    direction: "event",
    surface: "dashboard",
    timestamp: now(),
    ...rest,
    type: serviceName + ":event:" + type,
  });

  /** Send the queue immediately if it has ten events, and otherwise after a second, unless a retry is scheduled. */
  const scheduleFlush = () => {
    if (timer) return;
    if (queue[1] || queue[0]?.texts[9]) flush();
    else if (queue[0]) setTimeout(() => timer || flush(), 1e3);
  };

  const destroy = () => {
    if (chats) chats.clear();
    // After invalid options, there is nothing to leave.
    origin &&= leave() as undefined;
    listening.abort();
  };
  const forwarder: Forwarder = {
    ignored: 0,
    track: (event) =>
      attempt(() => origin && accept(complete(event), forwarder)) as void,
    flush: () => flush(),
    destroy,
    stop: destroy,
  };

  try {
    origin = new URL(new URL(key && (origin as any)).origin).origin;
    endpoint = new URL(endpoint || "api/v1/events", endpoint ? document.baseURI : import.meta.url).href;
    // The marker is the same in all versions. Older versions would misread the queue, so its prefix is another.
    marker = "embedsink " + endpoint + " ";
    prefix = "embedsink-queue " + endpoint + " ";
    owner = prefix + uuidPrefix;
    record();
    on("pagehide", leave);
    if (/true/.test(recordActions as any)) on("embedsink:action", receive);
    on("pageshow", adopt);
    on("message", receive);
    on("online", adopt);
    on("visibilitychange", () => (document.hidden ? flush(1) : adopt()));
    adopt();
    // An inline script keeps the messages that arrive before this module runs (docs/browser.md).
    attempt(() => embedsink!.forEach(receive));
  } catch (error) {
    origin = undefined;
    warn(error as Error);
  }
  return forwarder;
};
