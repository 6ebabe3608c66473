// The pretend embed: what a vendor's iframe would be. It tells its host what the viewer does, and obeys the host's actions.

import { readAddress, readFilter } from "./address.js";
import { filterWords } from "./dashboards.js";
import { make } from "./dom.js";
import { hostOrigin, listen, teller } from "./messages.js";
import { Questions } from "./questions.js";
import { placesOf } from "./surfaces.js";
import { speak } from "./words.js";

const TENANT = "fernway";
const DEPLOYMENT = 7;
const RADIUS_PX_MAX = 24;

class Embed {
  constructor(root, address, host) {
    this.root = root;
    this.address = address;
    this.filters = { ...address.filters };
    this.spoken = speak("en");
    this.tell = teller(address.surface, host);
    this.places = placesOf(address.surface, address.publicId);
    this.questions = address.surface === "chat" ? null : new Questions(this, { isWhole: false });
    listen(host, (name, payload) => this.obey(name, payload));
  }

  words() {
    return this.spoken;
  }

  begin() {
    if (!this.address.session) return this.stop("SessionMissingError", "The address names no session.");
    const { surface, publicId } = this.address;
    this.tell("ready", {
      embedTenant: TENANT,
      deploymentId: DEPLOYMENT,
      mode: "signed",
      surface,
      ...(publicId && { publicId }),
    });
    this.open(this.places[0]);
  }

  /** Goes to a path inside the embed, or says that there is none. */
  go(path) {
    const place = this.places.find((one) => one.path === path);
    if (place === this.place) return;
    if (!place) return this.fail("NotFoundError", this.words().nowhere, "navigation");
    this.tell("navigate", { path, previousPath: this.place.path });
    this.open(place);
  }

  open(place) {
    this.view?.close?.();
    this.place = place;
    this.trouble = null;
    const { surface } = this.address;
    this.tell("view", {
      surface,
      path: place.path,
      title: place.title(this.words()),
      ...(place.publicId && { publicId: place.publicId }),
    });
    this.view = place.open(this);
    this.redraw();
    this.view.load?.();
  }

  obey(name, payload) {
    if (this.isStopped) return;
    const root = document.documentElement;
    switch (name) {
      case "set-color-scheme":
        if (["light", "dark", "auto"].includes(payload.scheme)) root.dataset.scheme = payload.scheme;
        break;
      case "set-theme":
        wear(root.style, payload.embedTheme ?? payload);
        break;
      case "set-locale":
        this.spoken = speak(payload.locale);
        root.lang = this.spoken.locale;
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
        this.trouble = null;
        this.redraw();
        this.view.load?.();
    }
  }

  /** An error that the viewer can go on after. */
  fail(name, message, context) {
    this.tell("error", { message, name, context, fatal: false });
    this.trouble = message;
    this.redraw();
  }

  /** An error that takes the whole surface down. */
  stop(name, message) {
    this.isStopped = true;
    this.tell("error", { message, name, context: "auth", fatal: true });
    const again = make("button", { type: "button", onclick: () => location.reload() }, this.words().reload);
    this.root.replaceChildren(
      make("div", { class: "stopped", role: "alert" }, make("p", {}, message), this.address.session && again),
    );
  }

  redraw() {
    this.view.redraw();
    const main = make("main", {}, this.trouble && this.notice(), this.view.element);
    this.root.className = this.address.surface;
    this.root.replaceChildren(...[this.top(), this.questions?.element, main, this.bottom()].filter(Boolean));
  }

  top() {
    const words = this.words();
    const link = (place) =>
      make(
        "button",
        { type: "button", "aria-current": place === this.place ? "page" : null, onclick: () => this.go(place.path) },
        place.title(words),
      );
    const chips = filterWords(this.filters, words).map((text) => make("span", { class: "chip" }, text));
    const nav = this.places.length > 1 && make("nav", { "aria-label": "Marl" }, this.places.map(link));
    return make("header", { class: "top" }, nav, make("div", { class: "chips" }, chips));
  }

  notice() {
    const words = this.words();
    return make(
      "div",
      { class: "notice", role: "alert" },
      make("span", {}, this.trouble),
      make("button", { type: "button", onclick: () => this.obey("refresh") }, words.retry),
    );
  }

  bottom() {
    const words = this.words();
    const order = (text, onclick) => make("button", { type: "button", onclick }, text);
    return make(
      "footer",
      {},
      make("b", {}, words.trouble),
      order(words.timeout, () => this.fail("QueryTimeoutError", words.timedOut, "widget")),
      order(words.expire, () => this.stop("SessionExpiredError", words.expired)),
      order(words.unknown, () => this.tell("share", { to: "team" })),
      make("small", {}, words.byVendor),
    );
  }
}

/** Puts on a brand theme (spec 6.5), as far as it makes sense: anything else would be drawn as nothing. */
function wear(style, { primaryColor, borderRadius, font }) {
  if (CSS.supports("color", primaryColor)) style.setProperty("--primary", primaryColor);
  const radius = Number.parseFloat(borderRadius);
  if (Number.isFinite(radius)) style.setProperty("--radius", `${Math.min(Math.max(radius, 0), RADIUS_PX_MAX)}px`);
  if (CSS.supports("font-family", font)) style.setProperty("--font", font);
}

const host = hostOrigin();
const root = document.getElementById("embed");
if (host) new Embed(root, readAddress(new URL(location.href)), host).begin();
else root.append(make("p", { class: "stopped" }, speak(navigator.language).alone));
