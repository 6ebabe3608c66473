// The URL of an embed page (spec 4.3): the surface, the dashboard, the filters and the viewer's permissions.

const FILTER = /^f_([^.]+\.[^.]+)$/;

/** Parses a URL. `session` is null if it is missing; filters are values by dimension. */
export function readAddress(url) {
  const [, , surface, publicId] = url.pathname.split("/");
  const filters = {};
  for (const [name, value] of url.searchParams) {
    Object.assign(filters, readFilter(`${name}=${value}`));
  }
  return {
    surface: ["dashboard", "app", "chat"].includes(surface) ? surface : "dashboard",
    publicId: publicId || null,
    session: url.searchParams.get("session"),
    allowExport: url.searchParams.get("allowExport") === "true",
    filters,
  };
}

/** Parses `f_<semantic_view>.<dimension>=<JSON>` to values by dimension; any other text to no filters. */
export function readFilter(text) {
  const [name, ...rest] = text.replace(/^[?&]/, "").split("=");
  const dimension = FILTER.exec(decoded(name))?.[1];
  if (!dimension) return {};
  for (const json of [rest.join("="), decoded(rest.join("="))]) {
    try {
      const values = JSON.parse(json);
      return { [dimension]: [values ?? []].flat().map(String) };
    } catch {
      // It may be percent-encoded JSON. Any other text is no filter.
    }
  }
  return {};
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
