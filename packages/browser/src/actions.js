// The actions that a host page posts to its embed (spec 6.5), and the URL of the embed (spec 4.3). Invalid arguments throw a
// TypeError. actions.d.ts has the types.

const NAMES = ["set-color-scheme", "set-theme", "set-locale", "set-filter", "navigate", "refresh"];

/** Parse an http or https URL. URLs of other schemes have no origin, or run code in this page (`javascript:`). */
const parseUrl = (text) => {
  const url = new URL(text);
  if (!/^https?:$/.test(url.protocol)) throw TypeError(`"${text}" is not an http or https URL.`);
  return url;
};

/**
 * Return a filter as the name and value of the query parameter `f_<semantic view>.<dimension>=<JSON>`. Characters with a
 * meaning in a query are escaped as in JSON strings, so the value is the same before and after URL decoding.
 */
const filterParameter = ([dimension, value]) => {
  if (!/^[^.=&?#+%\s]+\.[^=&?#+%\s]+$/.test(dimension))
    throw TypeError(`filters: "${dimension}" is not a dimension. Example: orders.status.`);
  const escape = (character) => "\\u00" + character.charCodeAt().toString(16);
  // Numbers such as 1e+21 are valid without their plus sign.
  const json = JSON.stringify(value)?.replace(/"(\\.|[^"])*"|\+/g, (token) =>
    token == "+" ? "" : token.replace(/[%&+#=]/g, escape),
  );
  if (!json) throw TypeError(`filters: the value of "${dimension}" is undefined. Omit the filter, or pass null.`);
  return [`f_${dimension}`, json];
};

/** @type {typeof import("../../../src/embedsink/browser/actions").send} */
export const send = (iframe, origin, name, payload = {}, { serviceName = "svc" } = {}) => {
  const embedOrigin = parseUrl(origin).origin;
  if (!NAMES.includes(name)) throw TypeError(`send: "${name}" is not an action. Actions: ${NAMES.join(", ")}.`);
  const hasFilters = name == "set-filter" && !payload.filterUrlParameter;
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
    source.postMessage(data, embedOrigin);
    // A forwarder with `recordActions` listens to this event. Firefox refuses a window of another origin as an option.
    const event = new MessageEvent("embedsink:action", { data, origin: embedOrigin });
    dispatchEvent(Object.defineProperty(event, "source", { value: source }));
  }
};

/** @type {typeof import("../../../src/embedsink/browser/actions").embedUrl} */
export const embedUrl = ({ base, publicId, session, allowExport, filters = {} }) => {
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
