import { useForwarder } from "./useForwarder";

const { VITE_EMBED_URL, VITE_EMBEDSINK_KEY, VITE_EMBEDSINK_URL } = import.meta.env;

/** A dashboard whose events are forwarded. */
export function Dashboard({ viewer }: { viewer: string }) {
  useForwarder({
    endpoint: `${VITE_EMBEDSINK_URL}/api/v1/events`,
    origin: new URL(VITE_EMBED_URL).origin,
    key: VITE_EMBEDSINK_KEY,
    context: { viewer },
  });
  return <iframe src={VITE_EMBED_URL} title="Dashboard" />;
}
