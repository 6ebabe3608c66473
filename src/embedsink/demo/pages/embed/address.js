// Parses the URL of an embed page (spec 4.3): the surface, the dashboard, the filters and the viewer's permissions.

const FILTER = /^f_([^.]+\.[^.]+)$/;

/** Returns the parts of a URL. `session` is null if it is missing. `filters` has a list of values for each dimension. */
export function readAddress(url) {
  const [, , surface, publicId] = url.pathname.split("/");
  const filters = {};
  for (const [name, value] of url.searchParams) Object.assign(filters, readFilter(`${name}=${value}`));
  return {
    surface: ["dashboard", "app", "chat"].includes(surface) ? surface : "dashboard",
    publicId: publicId || null,
    session: url.searchParams.get("session"),
    allowExport: url.searchParams.get("allowExport") === "true",
    filters,
  };
}

/**
 * Parses `f_<semantic_view>.<dimension>=<JSON>`. Returns the list of values by dimension, or an empty object for any
 * other text.
 */
export function readFilter(text) {
  const [name, ...valueParts] = text.replace(/^[?&]/, "").split("=");
  const dimension = FILTER.exec(percentDecode(name))?.[1];
  if (!dimension) return {};
  const value = valueParts.join("=");
  // The value is JSON, which may be percent-encoded.
  for (const json of [value, percentDecode(value)]) {
    try {
      const values = JSON.parse(json) ?? [];
      return { [dimension]: [values].flat().map(String) };
    } catch {
      continue;
    }
  }
  return {};
}

/** Returns the decoded text, or the text itself if its percent-encoding is invalid. */
function percentDecode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
