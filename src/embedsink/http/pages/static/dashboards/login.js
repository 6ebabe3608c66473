// Redirects to the login, which returns to this page.

let isLoggingOut = false;
document.querySelector("form.logout")?.addEventListener("submit", () => { isLoggingOut = true; });
addEventListener("pageshow", () => { isLoggingOut = false; });

// Called after a 401. During a logout, pending requests also get a 401. They must not redirect.
export function logIn() {
  if (!isLoggingOut) location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}
