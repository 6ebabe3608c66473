// Reports new events and the state of the connection. It connects only while the page is visible: a browser has six
// connections to a server for all its tabs.

const STREAM = "/api/v1/events/live";
const STALE_MS = 4000;
const RETRY_MS = 3000;
const RETRY_FULL_MS = 30000;

export function listen({ onLoaded, onState }) {
  let revision = null;
  let staleTimer;
  let source = null;
  const onLost = () => {
    if (staleTimer) return;
    onState("connecting");
    staleTimer = setTimeout(() => onState("stale"), STALE_MS);
  };
  // The first message also reloads: the page may have loaded an older revision.
  const onMessage = ({ data }) => {
    const { revision: now } = JSON.parse(data);
    staleTimer = clearTimeout(staleTimer);
    onState("live");
    if (now !== revision) onLoaded();
    revision = now;
  };
  const open = () => {
    const stream = (source = new EventSource(STREAM));
    for (const name of ["connected", "loaded"]) stream.addEventListener(name, onMessage);
    stream.addEventListener("error", async () => {
      onLost();
      if (stream.readyState !== EventSource.CLOSED) return;
      // The browser doesn't retry after a refusal and hides its status: too many streams, or no login.
      const { status } = await fetch(STREAM, { method: "HEAD" }).catch(() => ({}));
      if (stream !== source) return;
      const isFull = [429, 503].includes(status);
      if (isFull) {
        staleTimer = clearTimeout(staleTimer);
        onState("full");
      }
      setTimeout(() => { if (stream === source) { onLoaded(); open(); } }, isFull ? RETRY_FULL_MS : RETRY_MS);
    });
  };
  const connectIfVisible = () => {
    source?.close();
    source = null;
    if (!document.hidden) open();
  };
  document.addEventListener("visibilitychange", connectIfVisible);
  connectIfVisible();
}
