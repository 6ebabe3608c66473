import type { VendorEvent } from "../../events.js";
import type { Conversions } from "./adapter.js";
import { type Data, object } from "./values.js";

/** The handle that `forward` returns. */
export interface Forwarder {
  track(event: VendorEvent): void;
}

/** Remove the listeners. */
export type Detach = () => void;

type Listener = (event: unknown) => void;

/** An object of a vendor's SDK, or an element. */
export type Target =
  | { on(name: string, listener: Listener): unknown; off(name: string, listener: Listener): unknown }
  | Pick<EventTarget, "addEventListener" | "removeEventListener">;

/** Pass the converted events to the forwarder. Never throws, because the caller is the vendor's SDK. */
export const track = (forwarder: Forwarder, convert: () => VendorEvent[]): void => {
  try {
    for (const event of convert()) forwarder.track(event);
  } catch {
    // The event can't be read, so it is not tracked. The vendor's SDK must not see an exception.
  }
};

/** Listen to the events of an SDK object or an element. Return a function that removes the listeners. */
export const listen = (
  target: Target,
  forwarder: Forwarder,
  conversions: Conversions,
  payloadOf: (event: Data) => unknown,
): Detach => {
  const listeners = Object.entries(conversions).map(([name, convert]): [string, Listener] => [
    name,
    (event) => track(forwarder, () => convert(object(payloadOf(object(event))))),
  ]);
  for (const [name, listener] of listeners)
    if ("on" in target) target.on(name, listener);
    else target.addEventListener(name, listener);
  return () => {
    for (const [name, listener] of listeners)
      if ("on" in target) target.off(name, listener);
      else target.removeEventListener(name, listener);
  };
};
