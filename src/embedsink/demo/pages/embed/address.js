// The address of an embed page (spec 4.3): which surface, what is shown, and what the viewer may do.

const FILTER = /^f_([^.]+\.[^.]+)$/;

/** What an address says. `session` is null where there is none; filters are values by dimension. */
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

/** The values of `f_<semantic_view>.<dimension>=<JSON>` by dimension; nothing for any other text. */
export function readFilter(text) {
  const [name, ...rest] = text.replace(/^[?&]/, "").split("=");
  const dimension = FILTER.exec(decoded(name))?.[1];
  if (!dimension) return {};
  for (const json of [rest.join("="), decoded(rest.join("="))]) {
    try {
      const values = JSON.parse(json);
      return { [dimension]: [values ?? []].flat().map(String) };
    } catch {
      // Not JSON as it stands: it may be percent-encoded, and otherwise it is no filter.
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
