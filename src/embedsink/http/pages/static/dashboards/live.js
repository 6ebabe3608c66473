// Tells when something was loaded, and whether the page is still told of it. It listens only while somebody looks:
// a browser has six connections to a server, for all its tabs together.

const STALE_MS = 4000;

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
    const mine = (source = new EventSource("/api/v1/events/live"));
    mine.addEventListener("connected", told);
    mine.addEventListener("loaded", told);
    mine.addEventListener("error", () => {
      lost();
      // A refusal ends it for good; the next request finds out whether there is still a login.
      if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (mine === source) { onLoaded(); open(); } }, 3000);
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
