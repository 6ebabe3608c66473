// The full-app embed posts `{ metabase: { type, … } }`. Of these messages, only locations are events.

import type { VendorEvent } from "../events.js";
import { type Adapt, adapter, adapterPerEmbed } from "./common/adapter.js";
import { filter, loaded, navigate, type Place, view } from "./common/events.js";
import { type Forwarder, track } from "./common/listener.js";
import { type Data, list, object, path, text } from "./common/values.js";

const SEARCH_MAX = 4_000;

/** Return the filters of a dashboard's query. A repeated parameter is a list. */
const filtersOf = (search: unknown): Data => {
  const parameters = new URLSearchParams(typeof search == "string" ? search.slice(0, SEARCH_MAX) : "");
  const names = [...new Set(parameters.keys())].filter((name) => name != "tab");
  return Object.fromEntries(
    names.map((name) => {
      const values = parameters.getAll(name);
      return [name, values[1] === undefined ? values[0] : values];
    }),
  );
};

/**
 * Return the path with the tab of a dashboard, which is a parameter of the query. The surface is `app`, because the full
 * app reports no loads: on the surface `dashboard`, each view would count as never loaded.
 */
const placeOf = ({ pathname, search }: Data): Place => {
  const page = path(pathname);
  const tab = new URLSearchParams(typeof search == "string" ? search.slice(0, SEARCH_MAX) : "").get("tab");
  const publicId = page?.match(/^\/dashboard\/(\d+)/)?.[1];
  return { path: page && tab ? `${page}?tab=${text(tab)}` : page, publicId, surface: "app" };
};

/** Return the adapter of one embed. It remembers the location of the embed. */
const adaptOne = (): Adapt => {
  let current: string | undefined;
  let filtersText = "";

  /** The first location is the load of the embed. A change of the query alone is a change of the filters. */
  const locationChanged = ({ metabase }: Data): VendorEvent[] => {
    const location = object(object(metabase).location);
    const place = placeOf(location);
    const filters = filtersOf(location.search);
    const from = current;
    const previousFilters = filtersText;
    if (!place.path) return [];
    current = place.path;
    filtersText = JSON.stringify(filters);
    if (!from) return view(place);
    if (current !== from) {
      const isTab = current.split("?")[0] === from.split("?")[0];
      return [...navigate(current, from, place.surface), ...(isTab ? [] : view(place))];
    }
    return filtersText === previousFilters ? [] : filter(filters, current, place.surface);
  };

  return adapter({ location: locationChanged }, ({ metabase }) => object(metabase).type);
};

export const adapt = adapterPerEmbed(adaptOne);

/** The properties of a dashboard component of Metabase's SDK that report its events. */
export interface Callbacks {
  onLoad(dashboard: unknown): void;
  onParametersChange(change: unknown): void;
}

/** Return the properties to pass to a dashboard component of Metabase's SDK. */
export const callbacks = (forwarder: Forwarder): Callbacks => ({
  onLoad: (dashboard) =>
    track(forwarder, () => {
      const { id, name, dashcards } = object(dashboard);
      const publicId = text(id);
      if (!publicId) return [];
      const widgetCount = list(dashcards).length || undefined;
      const place = { publicId, path: "/dashboard/" + publicId, title: text(name) };
      return [...view(place), ...loaded({ publicId, widgetCount })];
    }),
  onParametersChange: (change) =>
    track(forwarder, () => {
      const { source, parameters } = object(change);
      return source === "manual-change" ? filter(parameters) : [];
    }),
});
