import type { VendorEvent } from "../events.js";
import { type Adapt, adapter, adapterPerEmbed, type Conversions } from "./common/adapter.js";
import { error, filter, loaded, navigate, view } from "./common/events.js";
import { count, type Data, path, text } from "./common/values.js";

/** Return the adapter of one embed. It remembers the path of the embed. */
const adaptOne = (): Adapt => {
  let current: string | undefined;
  let tab = "";

  /** The first location is the load of the embed. A change of the query or the tab alone is no navigation. */
  const locationChanged = ({ pathname }: Data): VendorEvent[] => {
    const to = path(pathname)?.replace(/\/tabs\/[^/]*$/, "");
    const from = current;
    if (!to || to === from) return [];
    current = to;
    tab = "";
    return [...(from ? navigate(to, from) : []), ...view({ path: to })];
  };

  const tabChanged = ({ tabIndex }: Data): VendorEvent[] => {
    if (count(tabIndex) === undefined) return [];
    const from = current && current + tab;
    tab = `/tab/${tabIndex}`;
    return navigate((current ?? "") + tab, from);
  };

  const conversions: Conversions = {
    "lightdash:locationChanged": locationChanged,
    "lightdash:tabChanged": tabChanged,
    "lightdash:allTilesLoaded": ({ tilesCount, loadTimeMs }) =>
      loaded({ widgetCount: count(tilesCount), loadDurationMs: count(loadTimeMs) }),
    // Lightdash reports only the number of filters.
    "lightdash:filterChanged": () => filter(undefined, current),
    "lightdash:error": ({ errorType }) => error(text(errorType), { name: text(errorType) }),
  };
  return adapter(conversions, ({ type }) => type, ({ payload }) => payload);
};

export const adapt = adapterPerEmbed(adaptOne);
