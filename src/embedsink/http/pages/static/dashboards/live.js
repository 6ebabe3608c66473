// Tells when something was loaded, and whether the page is still told of it.

const STALE_MS = 4000;

export function listen({ onLoaded, onState }) {
  let revision = null;
  let lostFor = 0;
  let source = null;
  const live = () => {
    clearTimeout(lostFor);
    lostFor = 0;
    onState("live");
  };
  const lost = () => {
    if (lostFor) return;
    onState("connecting");
    lostFor = setTimeout(() => onState("stale"), STALE_MS);
  };
  const told = ({ data }) => {
    const { revision: now } = JSON.parse(data);
    live();
    if (revision !== null && now !== revision) onLoaded();
    revision = now;
  };
  const open = () => {
    source = new EventSource("/api/v1/events/live");
    source.addEventListener("connected", told);
    source.addEventListener("loaded", told);
    source.addEventListener("error", () => {
      lost();
      // A refusal ends it for good; the next request finds out whether there is still a login.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => { onLoaded(); open(); }, 3000);
    });
  };
  open();
}
