// Superset's SDK talks to the embed through a private port. It reports only changes of the filters.

import { filter, type Place, view } from "./common/events.js";
import { type Detach, type Forwarder, track } from "./common/listener.js";
import { type Data, object } from "./common/values.js";

const CHANGES = ["nativeFiltersChanged", "crossFiltersChanged"];

const filtersOf = (dataMask: Data): Data =>
  Object.fromEntries(
    Object.entries(dataMask)
      .filter(([name]) => !CHANGES.includes(name))
      .map(([name, mask]) => [name, object(object(mask).filterState).value ?? null]),
  );

/** The dashboard that `embedDashboard` of Superset's SDK resolves to. */
export interface EmbeddedDashboard {
  observeDataMask(callback: (dataMask: unknown) => void): void;
}

/**
 * Report the view of a dashboard, and the changes of its filters if `emitDataMasks` is set. The SDK has one observer,
 * and no way to remove it: pass yours as `observer`.
 */
export const attach = (
  dashboard: EmbeddedDashboard,
  forwarder: Forwarder,
  place: Place = {},
  observer?: (dataMask: unknown) => void,
): Detach => {
  let isAttached = true;
  // Superset reports no loads: on the surface `dashboard`, each view would count as never loaded.
  const { surface = "app", path } = place;
  track(forwarder, () => view({ ...place, surface }));
  dashboard.observeDataMask((dataMask) => {
    track(forwarder, () => {
      const data = object(dataMask);
      if (!isAttached || !CHANGES.some((name) => data[name] === true)) return [];
      return filter(filtersOf(data), path, surface);
    });
    observer?.(dataMask);
  });
  return () => {
    isAttached = false;
  };
};
