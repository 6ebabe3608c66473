// The simulated embed of a vendor. It sends the viewer's events to the host page, and performs the host's actions.

import { readAddress, readFilter } from "./address.js";
import { filterTexts } from "./dashboards.js";
import { make } from "./dom.js";
import { eventSender, hostOrigin, onAction } from "./messages.js";
import { Questions } from "./questions.js";
import { pagesOf } from "./surfaces.js";
import { translate } from "./translations.js";

const TENANT = "fernway";
const DEPLOYMENT = 7;
const RADIUS_PX_MAX = 24;

class Embed {
  constructor(root, address, host) {
    this.root = root;
    this.address = address;
    this.filters = { ...address.filters };
    this.translation = translate("en");
    this.sendEvent = eventSender(address.surface, host);
    this.pages = pagesOf(address.surface, address.publicId);
    this.questions = address.surface === "chat" ? null : new Questions(this, { isWhole: false });
    onAction(host, (name, payload) => this.perform(name, payload));
  }

  words() {
    return this.translation;
  }

  begin() {
    if (!this.address.session) return this.stop("SessionMissingError", "The URL has no session.");
    const { surface, publicId } = this.address;
    this.sendEvent("ready", {
      embedTenant: TENANT,
      deploymentId: DEPLOYMENT,
      mode: "signed",
      surface,
      ...(publicId && { publicId }),
    });
    this.open(this.pages[0]);
  }

  /** Opens the page at a path inside the embed. An unknown path is an error. */
  go(path) {
    const page = this.pages.find((candidate) => candidate.path === path);
    if (page === this.page) return;
    if (!page) return this.fail("NotFoundError", this.words().notFound, "navigation");
    this.sendEvent("navigate", { path, previousPath: this.page.path });
    this.open(page);
  }

  open(page) {
    this.view?.close?.();
    this.page = page;
    this.error = null;
    const { surface } = this.address;
    this.sendEvent("view", {
      surface,
      path: page.path,
      title: page.title(this.words()),
      ...(page.publicId && { publicId: page.publicId }),
    });
    this.view = page.open(this);
    this.redraw();
    this.view.load?.();
  }

  /** Performs an action of the host page. Invalid and unknown actions have no effect. */
  perform(name, payload) {
    if (this.isStopped) return;
    const root = document.documentElement;
    switch (name) {
      case "set-color-scheme":
        if (["light", "dark", "auto"].includes(payload.scheme)) root.dataset.scheme = payload.scheme;
        break;
      case "set-theme":
        applyTheme(root.style, payload.embedTheme ?? payload);
        break;
      case "set-locale":
        this.translation = translate(payload.locale);
        root.lang = this.translation.locale;
        this.questions?.redraw();
        this.redraw();
        break;
      case "set-filter":
        Object.assign(this.filters, readFilter(String(payload.filterUrlParameter)));
        this.redraw();
        break;
      case "navigate":
        this.go(payload.path);
        break;
      case "refresh":
        this.error = null;
        this.redraw();
        this.view.load?.();
    }
  }

  /** Shows an error after which the viewer can continue. */
  fail(name, message, context) {
    this.sendEvent("error", { message, name, context, fatal: false });
    this.error = message;
    this.redraw();
  }

  /** Shows an error that stops the whole surface. */
  stop(name, message) {
    this.isStopped = true;
    this.sendEvent("error", { message, name, context: "auth", fatal: true });
    const reloadButton = make("button", { type: "button", onclick: () => location.reload() }, this.words().reload);
    this.root.replaceChildren(
      make("div", { class: "stopped", role: "alert" }, make("p", {}, message), this.address.session && reloadButton),
    );
  }

  redraw() {
    this.view.redraw();
    const main = make("main", {}, this.error && this.notice(), this.view.element);
    this.root.className = this.address.surface;
    this.root.replaceChildren(...[this.top(), this.questions?.element, main, this.bottom()].filter(Boolean));
  }

  /** Returns the navigation and the active filters. */
  top() {
    const words = this.words();
    const link = (page) =>
      make(
        "button",
        { type: "button", "aria-current": page === this.page ? "page" : null, onclick: () => this.go(page.path) },
        page.title(words),
      );
    const chips = filterTexts(this.filters, words).map((text) => make("span", { class: "chip" }, text));
    const nav = this.pages.length > 1 && make("nav", { "aria-label": "Marl" }, this.pages.map(link));
    return make("header", { class: "top" }, nav, make("div", { class: "chips" }, chips));
  }

  /** Returns the message of the last error. */
  notice() {
    const words = this.words();
    return make(
      "div",
      { class: "notice", role: "alert" },
      make("span", {}, this.error),
      make("button", { type: "button", onclick: () => this.perform("refresh") }, words.retry),
    );
  }

  /** Returns the buttons that simulate errors and an unknown message. */
  bottom() {
    const words = this.words();
    const button = (text, onclick) => make("button", { type: "button", onclick }, text);
    return make(
      "footer",
      {},
      make("b", {}, words.simulate),
      button(words.timeout, () => this.fail("QueryTimeoutError", words.timedOut, "widget")),
      button(words.expire, () => this.stop("SessionExpiredError", words.expired)),
      button(words.unknown, () => this.sendEvent("share", { to: "team" })),
      make("small", {}, words.byVendor),
    );
  }
}

/** Applies the valid parts of a theme (spec 6.5). */
function applyTheme(style, { primaryColor, borderRadius, font }) {
  if (CSS.supports("color", primaryColor)) style.setProperty("--primary", primaryColor);
  const radius = Number.parseFloat(borderRadius);
  if (Number.isFinite(radius)) style.setProperty("--radius", `${Math.min(Math.max(radius, 0), RADIUS_PX_MAX)}px`);
  if (CSS.supports("font-family", font)) style.setProperty("--font", font);
}

const host = hostOrigin();
const root = document.getElementById("embed");
if (host) new Embed(root, readAddress(new URL(location.href)), host).begin();
else root.append(make("p", { class: "stopped" }, translate(navigator.language).alone));
