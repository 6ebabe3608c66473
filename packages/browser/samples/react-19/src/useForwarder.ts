import { forward, type Options } from "@embedsink/browser";
import { useEffect, useRef } from "react";

/** Forward the events of embeds while the component is mounted. */
export function useForwarder(options: Options): void {
  // The forwarder reads this object at each event, so it uses the values of the last rendering.
  const current = useRef({ ...options }).current;
  useEffect(() => {
    Object.assign(current, options);
  });
  useEffect(() => {
    const forwarder = forward(current);
    return () => forwarder.destroy();
  }, [current, options.endpoint, options.key, options.origin]);
}
