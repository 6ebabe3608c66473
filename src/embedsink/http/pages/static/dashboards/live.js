// Tells when something was loaded, and whether the page is still told of it. It listens only while somebody looks:
// a browser has six connections to a server, for all its tabs together.

const STREAM = "/api/v1/events/live";
const STALE_MS = 4000;
const AGAIN_MS = 3000;
const FULL_MS = 30000;

export function listen({ onLoaded, onState }) {
  let revision = null;
  let lostFor;
  let source = null;
  const lost = () => {
    if (lostFor) return;
    onState("connecting");
    lostFor = setTimeout(() => onState("stale"), STALE_MS);
  };
  // The first message, too: the page may have asked before what it tells of.
  const told = ({ data }) => {
    const { revision: now } = JSON.parse(data);
    lostFor = clearTimeout(lostFor);
    onState("live");
    if (now !== revision) onLoaded();
    revision = now;
  };
  const open = () => {
    const mine = (source = new EventSource(STREAM));
    mine.addEventListener("connected", told);
    mine.addEventListener("loaded", told);
    mine.addEventListener("error", async () => {
      lost();
      if (mine.readyState !== EventSource.CLOSED) return;
      // A refusal ends it for good, and doesn't say why: as many may listen as do, or there is no login any more.
      const { status } = await fetch(STREAM, { method: "HEAD" }).catch(() => ({}));
      if (mine !== source) return;
      const isFull = [429, 503].includes(status);
      if (isFull) {
        lostFor = clearTimeout(lostFor);
        onState("full");
      }
      setTimeout(() => { if (mine === source) { onLoaded(); open(); } }, isFull ? FULL_MS : AGAIN_MS);
    });
  };
  const look = () => {
    source?.close();
    source = null;
    if (!document.hidden) open();
  };
  document.addEventListener("visibilitychange", look);
  look();
}
