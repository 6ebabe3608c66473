// The actions that a host page posts to its embed (spec 6.5), and the URL of the embed (spec 4.3). Invalid arguments throw a
// TypeError.

export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

/** Values by `<semantic view>.<dimension>`. A name contains no space and none of `= & ? # + %`. */
export type Filters = Record<`${string}.${string}`, Json>;

/** The common fields of a brand theme. The vendor may support more. */
export interface Theme {
  primaryColor?: unknown;
  borderRadius?: unknown;
  font?: unknown;
  [field: string]: unknown;
}

/** The six actions of spec 6.5 and their payloads. */
export interface Actions {
  "set-color-scheme": { scheme: "light" | "dark" | "auto" };
  "set-theme": Theme | { embedTheme: Theme };
  "set-locale": { locale: string };
  /** An object of filters is posted as one action for each filter. */
  "set-filter": Filters | { filterUrlParameter: string };
  navigate: { path: string };
  refresh: Record<string, never> | undefined;
}

export interface Embed {
  /** An `http` or `https` URL, such as `https://tenant.example.com`, with the parent path of the embeds if they have one. */
  base: string;
  publicId: string;
  /** The session from the session-generation API. It is a credential: never log the URL. */
  session: string;
  /** Show the CSV download on widgets. */
  allowExport?: boolean;
  filters?: Filters;
}

const NAMES = ["set-color-scheme", "set-theme", "set-locale", "set-filter", "navigate", "refresh"];

/** Parse an http or https URL. URLs of other schemes have no origin, or run code in this page (`javascript:`). */
const parseUrl = (text: string): URL => {
  const url = new URL(text);
  if (!/^https?:$/.test(url.protocol)) throw TypeError(`"${text}" is not an http or https URL.`);
  return url;
};

/**
 * Return a filter as the name and value of the query parameter `f_<semantic view>.<dimension>=<JSON>`. Characters with a
 * meaning in a query are escaped as in JSON strings, so the value is the same before and after URL decoding.
 */
const filterParameter = ([dimension, value]: [string, unknown]): [string, string] => {
  if (!/^[^.=&?#+%\s]+\.[^=&?#+%\s]+$/.test(dimension))
    throw TypeError(`filters: "${dimension}" is not a dimension. Example: orders.status.`);
  const escape = (character: string) => "\\u00" + character.charCodeAt(0).toString(16);
  // Numbers such as 1e+21 are valid without their plus sign.
  const json = JSON.stringify(value)?.replace(/"(\\.|[^"])*"|\+/g, (token) =>
    token == "+" ? "" : token.replace(/[%&+#=]/g, escape),
  );
  if (!json) throw TypeError(`filters: the value of "${dimension}" is undefined. Omit the filter, or pass null.`);
  return [`f_${dimension}`, json];
};

/**
 * Post an action to an embed. Only a page of this origin receives it.
 *
 * Throws a TypeError for an invalid origin (such as `*`), an unknown action, a filter without a value, and an iframe that is
 * not in a page.
 */
export const send = <Name extends keyof Actions>(
  iframe: HTMLIFrameElement,
  origin: string,
  name: Name,
  ...[payload = {}, { serviceName = "svc" } = {}]: undefined extends Actions[Name]
    ? [payload?: Actions[Name], options?: { serviceName?: string }]
    : [payload: Actions[Name], options?: { serviceName?: string }]
): void => {
  const embedOrigin = parseUrl(origin).origin;
  if (!NAMES.includes(name)) throw TypeError(`send: "${name}" is not an action. Actions: ${NAMES.join(", ")}.`);
  const hasFilters = name == "set-filter" && !(payload as { filterUrlParameter?: string }).filterUrlParameter;
  const payloads = hasFilters
    ? Object.entries(payload).map((filter) => ({ filterUrlParameter: filterParameter(filter).join("=") }))
    : [payload];
  for (const actionPayload of payloads) {
    const data = {
      source: serviceName + "-embed",
      direction: "action",
      type: `${serviceName}:action:${name}`,
      payload: actionPayload,
      timestamp: Date.now(),
    };
    const source = iframe.contentWindow;
    source!.postMessage(data, embedOrigin);
    // A forwarder with `recordActions` listens to this event. Firefox refuses a window of another origin as an option.
    const event = new MessageEvent("embedsink:action", { data, origin: embedOrigin });
    dispatchEvent(Object.defineProperty(event, "source", { value: source }));
  }
};

/** Return the URL of a signed dashboard embed. Throws a TypeError if a part is missing or would change the URL's structure. */
export const embedUrl = ({ base, publicId, session, allowExport, filters = {} }: Embed): string => {
  const url = parseUrl(base);
  // A browser resolves `..` to the parent folder.
  for (const id of [publicId, session])
    if (!id || /^\.+$/.test(id)) throw TypeError(`embedUrl: "${id}" is not a publicId or a session.`);
  url.pathname = url.pathname.replace(/\/*$/, "/embed/dashboard/") + encodeURIComponent(publicId);
  url.search = url.hash = "";
  url.searchParams.set("session", session);
  // Compare as text: `allowExport` may be the text "false" of an attribute.
  if (`${allowExport}` == "true") url.searchParams.set("allowExport", "true");
  for (const filter of Object.entries(filters)) url.searchParams.set(...filterParameter(filter));
  return url.href;
};
