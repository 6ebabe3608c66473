// Files for the viewer's folder, out of memory.

import { make } from "./dom.js";

const FORGOTTEN_AFTER_MS = 10_000;

/** Saves a blob under a name, as if a link to it had been clicked. */
export function saveFile(blob, name) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  // The browser reads it after this, and says nowhere when it has.
  setTimeout(() => URL.revokeObjectURL(address), FORGOTTEN_AFTER_MS);
}
