// The entry of the npm package @embedsink/browser. Importing it touches no DOM, so it also works in Node.

import type { Envelope } from "./events.js";
import { forward as start, type Forwarder as Core, type Options as CoreOptions } from "./forwarder.js";

export { embedUrl, send, type Actions, type Embed, type Filters, type Json, type Theme } from "./actions.js";
export type * from "./events.js";
export type { Context, Problem, Stage } from "./forwarder.js";

export interface Options<Service extends string = "svc"> extends CoreOptions<Service> {
  /** The URL that receives the events, such as `https://events.example.com/api/v1/events`. */
  endpoint: string | URL;
  /** The host's own session id. It replaces `session` of the context. */
  session?: string;
  /**
   * Whether the viewer consents. It is read or called at each event and before each request. Unless it is true, nothing is
   * forwarded. If it is false, what the forwarder has stored in the browser is deleted. Default: true.
   */
  consent?: boolean | (() => boolean | undefined);
  /** Called with events that the server has confirmed. Its exceptions are ignored. */
  onDelivered?: (envelopes: Envelope<Service>[]) => void;
}

export interface Forwarder extends Core {
  /** Rate the last answer in a chat. `chatId` is that of its `ai-query` events, and the rating joins their session. */
  feedback(chatId: string, rating: "up" | "down", text?: string): void;
}

/** Forward the events of embeds until the page closes or `destroy` is called. `onError` receives errors in the options. */
export const forward = <Service extends string = "svc">(options: Options<Service>): Forwarder => {
  let delivered: Envelope<Service>[] = [];

  const reportDelivered = () => {
    const envelopes = delivered;
    delivered = [];
    try {
      options.onDelivered?.(envelopes);
    } catch {
      // An exception of the host must not become an error of the page.
    }
  };

  const core = start<Service>({
    ...options,
    // `options` is read at each event, because the host may change it.
    get consent() {
      return options.consent;
    },
    context() {
      const { context, session } = options;
      const values = typeof context == "function" ? context() : context;
      return session ? { ...values, session } : { ...values };
    },
    onEvent(envelope, stage) {
      // The events of a delivery are reported one after another, in one task.
      if (stage == "durable" && delivered.push(envelope) == 1) queueMicrotask(reportDelivered);
      options.onEvent?.(envelope, stage);
    },
  } as Options<Service>);

  return Object.assign(core, {
    feedback: (chatId: string, rating: "up" | "down", text?: string) =>
      core.track({ type: "x-feedback", payload: { chatId, rating, text }, surface: "chat" }),
  });
};
