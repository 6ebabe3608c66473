import type { VendorEvent } from "../../events.js";
import { type Data, object } from "./values.js";

/** The functions that convert the payloads of a vendor's events, by the names of the events. */
export type Conversions = Record<string, (payload: Data) => VendorEvent[]>;

/** Convert the `data` of a message event to events. `source` is the window of the embed. */
export type Adapt = (message: unknown, source?: unknown) => VendorEvent[];

/** Return an adapter that finds the conversion of a message by its name. Other messages are no events. */
export const adapter = (
  conversions: Conversions,
  nameOf: (message: Data) => unknown,
  payloadOf: (message: Data) => unknown = (message) => message,
): Adapt => {
  const byName = new Map<unknown, Conversions[string]>(Object.entries(conversions));
  return (message) => {
    try {
      const data = object(message);
      return byName.get(nameOf(data))?.(object(payloadOf(data))) ?? [];
    } catch {
      // The message can't be read, so it is no event. The host page must not see an exception.
      return [];
    }
  };
};

/** Return an adapter that remembers something of each embed: `create` returns the adapter of one. */
export const adapterPerEmbed = (create: () => Adapt): Adapt => {
  const adapters = new WeakMap<object, Adapt>();
  // Several forwarders on a page get the same message.
  const results = new WeakMap<object, VendorEvent[]>();
  const withoutSource = {};
  return (message, source) => {
    if (typeof message != "object" || message === null) return [];
    const embed = typeof source == "object" && source !== null ? source : withoutSource;
    const adapt = adapters.get(embed) ?? create();
    const events = results.get(message) ?? adapt(message);
    adapters.set(embed, adapt);
    results.set(message, events);
    return events;
  };
};
