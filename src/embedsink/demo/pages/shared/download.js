// Saves files that exist only in memory.

import { make } from "./dom.js";

const REVOKED_AFTER_MS = 10_000;

/** Saves a blob under a name. */
export function saveFile(blob, name) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  // The browser reads the blob later, and fires no event when it is done.
  setTimeout(() => URL.revokeObjectURL(url), REVOKED_AFTER_MS);
}
