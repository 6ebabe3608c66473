// The actions that a host page posts to its embed (spec 6.5), and the URL of the embed (spec 4.3). Invalid arguments throw a
// TypeError. actions.d.ts has the types.

const NAMES = ["set-color-scheme", "set-theme", "set-locale", "set-filter", "navigate", "refresh"];

/** Parse an http or https URL. Others have no origin, or run code in this page (`about:`, `javascript:`). */
const site = (address) => {
  const url = new URL(address);
  if (!/^https?:$/.test(url.protocol)) throw TypeError(`"${address}" is not https://…`);
  return url;
};

/**
 * Return a filter as the name and value of `f_<semantic view>.<dimension>=<JSON>`. Characters with a meaning in a query are
 * escaped as in JSON strings, so the value is the same before and after URL decoding.
 */
const parameter = ([name, value]) => {
  if (!/^[^.=&?#+%\s]+\.[^=&?#+%\s]+$/.test(name)) throw TypeError(`filters: "${name}" is not <view>.<dimension>`);
  const escape = (letter) => "\\u00" + letter.charCodeAt().toString(16);
  const json = JSON.stringify(value)?.replace(/"(\\.|[^"])*"|\+/g, (part) => (part == "+" ? "" : part.replace(/[%&+#=]/g, escape)));
  if (!json) throw TypeError(`filters: "${name}" has no value; leave it out, or say null`);
  return [`f_${name}`, json];
};

/** @type {typeof import("./actions").send} */
export const send = (iframe, origin, name, payload = {}, { serviceName = "svc" } = {}) => {
  const target = site(origin).origin;
  if (!NAMES.includes(name)) throw TypeError(`send: "${name}" is not one of ${NAMES}`);
  const isObject = name == "set-filter" && !payload.filterUrlParameter;
  const payloads = isObject
    ? Object.entries(payload).map((filter) => ({ filterUrlParameter: parameter(filter).join("=") }))
    : [payload];
  for (const each of payloads) {
    const data = {
      source: serviceName + "-embed",
      direction: "action",
      type: `${serviceName}:action:${name}`,
      payload: each,
      timestamp: Date.now(),
    };
    const source = iframe.contentWindow;
    source.postMessage(data, target);
    // A forwarder with `recordActions` listens to this event.
    dispatchEvent(new MessageEvent("embedsink:action", { data, origin: target, source }));
  }
};

/** @type {typeof import("./actions").embedUrl} */
export const embedUrl = ({ base, publicId, session, allowExport, filters = {} }) => {
  const url = site(base);
  // A browser resolves `..` to the parent folder.
  for (const id of [publicId, session])
    if (!id || /^\.+$/.test(id)) throw TypeError(`embedUrl: "${id}" is not a publicId or session`);
  url.pathname = url.pathname.replace(/\/*$/, "/embed/dashboard/") + encodeURIComponent(publicId);
  url.search = url.hash = "";
  url.searchParams.set("session", session);
  // Compare as text, so that the attribute value "false" means no.
  if (`${allowExport}` == "true") url.searchParams.set("allowExport", "true");
  for (const filter of Object.entries(filters)) url.searchParams.set(...parameter(filter));
  return url.href;
};
