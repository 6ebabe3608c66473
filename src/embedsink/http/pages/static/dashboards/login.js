// The login, which leads back to the page.

let isLoggingOut = false;
document.querySelector("form.leave")?.addEventListener("submit", () => { isLoggingOut = true; });
addEventListener("pageshow", () => { isLoggingOut = false; });

// After a refusal. While the reader logs out, what the page still asks is refused, too, and must not lead elsewhere.
export function logIn() {
  if (!isLoggingOut) location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}
