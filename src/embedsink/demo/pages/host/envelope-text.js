// Envelopes and counts as text. An envelope comes from another vendor: it may contain anything, and may be invalid.

const CHARACTERS_MAX = 120;

/** Returns the last part of an envelope's type, such as `view`. */
export function nameOf({ type }) {
  return text(type).split(":").at(-1) || "no type";
}

/** Returns the most important fields of an envelope's payload as text. */
export function describe(envelope) {
  const { payload } = envelope;
  if (typeof payload !== "object" || payload === null || Array.isArray(payload)) return text(payload);
  const fields = DESCRIPTIONS[nameOf(envelope)]?.(payload) ?? [Object.values(payload)[0]];
  return fields.map(text).filter(Boolean).join(", ").slice(0, CHARACTERS_MAX);
}

/** Returns the counts of the tracker in one line. */
export function summarize({ seen, waiting, loading, visible, stored, rejected, lost }) {
  const parts = [
    `${seen} seen`,
    waiting && `${waiting} waiting`,
    loading && `${loading} loading`,
    `${visible} visible`,
    stored && `${stored} ${stored === 1 ? "action" : "actions"}`,
    rejected && `${rejected} quarantined`,
    `${lost} lost`,
  ];
  return parts.filter(Boolean).join(" · ");
}

const DESCRIPTIONS = {
  ready: ({ mode, embedTenant }) => [mode, embedTenant],
  view: ({ title, path }) => [title ?? path],
  "dashboard-loaded": ({ widgetCount, loadDurationMs }) => [`${text(widgetCount)} widgets`, `${text(loadDurationMs)} ms`],
  download: ({ format, title }) => [format, title],
  drilldown: ({ member, value }) => [`${text(member)} → ${text(value)}`],
  "ai-query": ({ status, query }) => [`${text(status)}: ${text(query)}`],
  error: ({ fatal, name }) => [fatal && "fatal", name],
  "set-theme": ({ embedTheme }) => [embedTheme?.primaryColor],
};

/** Returns a value of any type as text. Missing and false values are empty. */
function text(value) {
  if (value === undefined || value === null || value === false) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
