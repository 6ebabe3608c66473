import type { VendorEvent } from "../../events.js";
import { type Data, object } from "./values.js";

/** The functions that convert the payloads of a vendor's events, by the names of the events. */
export type Conversions = Record<string, (payload: Data) => VendorEvent[]>;

export type Adapt = (message: unknown) => VendorEvent[];

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
