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
export const adapterOfEach = (create: () => Adapt): Adapt => {
  const adapters = new WeakMap<object, Adapt>();
  const withoutSource = create();
  return (message, source) => {
    if (typeof source != "object" || source === null) return withoutSource(message);
    let adapt = adapters.get(source);
    if (!adapt) adapters.set(source, (adapt = create()));
    return adapt(message);
  };
};
