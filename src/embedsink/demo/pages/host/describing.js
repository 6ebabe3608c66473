// An envelope in a few words. It may hold anything: the embed is another firm's, and what is wrong in it is shown too.

const CHARACTERS_MAX = 120;

/** The last part of its type: what most people call it. */
export function nameOf({ type }) {
  return words(type).split(":").at(-1) || "no type";
}

/** What it is about. */
export function describe(envelope) {
  const { payload } = envelope;
  if (typeof payload !== "object" || payload === null || Array.isArray(payload)) return words(payload);
  const told = DESCRIPTIONS[nameOf(envelope)]?.(payload) ?? [Object.values(payload)[0]];
  return told.map(words).filter(Boolean).join(", ").slice(0, CHARACTERS_MAX);
}

/** What has become of all of them, in one line. */
export function tell({ seen, waiting, loading, visible, kept, rejected, lost }) {
  const parts = [
    `${seen} seen`,
    waiting && `${waiting} waiting`,
    loading && `${loading} loading`,
    `${visible} visible`,
    kept && `${kept} ${kept === 1 ? "action" : "actions"}`,
    rejected && `${rejected} quarantined`,
    `${lost} lost`,
  ];
  return parts.filter(Boolean).join(" · ");
}

const DESCRIPTIONS = {
  ready: ({ mode, embedTenant }) => [mode, embedTenant],
  view: ({ title, path }) => [title ?? path],
  "dashboard-loaded": ({ widgetCount, loadDurationMs }) => [`${words(widgetCount)} widgets`, `${words(loadDurationMs)} ms`],
  download: ({ format, title }) => [format, title],
  drilldown: ({ member, value }) => [`${words(member)} → ${words(value)}`],
  "ai-query": ({ status, query }) => [`${words(status)}: ${words(query)}`],
  error: ({ fatal, name }) => [fatal && "fatal", name],
  "set-theme": ({ embedTheme }) => [embedTheme?.primaryColor],
};

/** A value that should have been a text. */
function words(value) {
  if (value === undefined || value === null || value === false) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
