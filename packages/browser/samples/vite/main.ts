import { forward } from "@embedsink/browser";

const { VITE_EMBED_URL, VITE_EMBEDSINK_KEY, VITE_EMBEDSINK_URL } = import.meta.env;

// Start the forwarder before the iframe exists, so that it receives the first event.
const forwarder = forward({
  endpoint: `${VITE_EMBEDSINK_URL}/api/v1/events`,
  origin: new URL(VITE_EMBED_URL).origin,
  key: VITE_EMBEDSINK_KEY,
  context: { viewer: "u_42" },
});

const iframe = document.createElement("iframe");
iframe.src = VITE_EMBED_URL;
const button = document.createElement("button");
button.textContent = "Hide the dashboard";
button.onclick = () => {
  iframe.remove();
  forwarder.destroy();
};
document.body.append(button, iframe);
