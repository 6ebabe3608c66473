// Controls for the six actions of spec 6.5: each change is one message to the embed.

import { send } from "/actions.js";
import { make } from "./dom.js";

const SCHEMES = { auto: "Auto", light: "Light", dark: "Dark" };
const THEMES = {
  marl: {
    title: "Marl",
    embedTheme: { primaryColor: "#3b5bdb", borderRadius: 8, font: "Inter, system-ui, sans-serif" },
  },
  fernway: {
    title: "Fernway",
    embedTheme: { primaryColor: "#1d6b52", borderRadius: 14, font: "Inter, system-ui, sans-serif" },
  },
  plum: { title: "Plum", embedTheme: { primaryColor: "#9c36b5", borderRadius: 2, font: "Georgia, serif" } },
};
const LOCALES = { en: "English", "de-AT": "Deutsch", fr: "Français" };
const REGIONS = ["North", "East", "South", "West"];
const PATHS = {
  dashboard: { "/dashboards/d_orders": "Orders", "/dashboards/d_deliveries": "Deliveries" },
  app: { "/home": "Home", "/workbooks/wb_114": "Workbook", "/folders/shared": "Shared" },
  chat: { "/chat": "Chat" },
};

export class Actions {
  constructor(form, { iframe, origin }) {
    Object.assign(this, { form, iframe, origin });
    // What is not as an embed begins, by action.
    this.chosen = new Map();
    form.addEventListener("submit", (event) => event.preventDefault());
    this.paths = make("div", { class: "choices" });
    form.append(
      choice(
        "set-color-scheme",
        "Colours",
        radios("scheme", SCHEMES, (scheme) => this.choose("set-color-scheme", { scheme }, scheme === "auto")),
      ),
      choice(
        "set-theme",
        "Brand",
        radios("theme", titles(THEMES), (name) =>
          this.choose("set-theme", { embedTheme: THEMES[name].embedTheme }, name === "marl"),
        ),
      ),
      choice(
        "set-locale",
        "Language",
        radios("locale", LOCALES, (locale) => this.choose("set-locale", { locale }, locale === "en")),
      ),
      choice("set-filter", "Region", this.regions()),
      choice("navigate", "Go to", this.paths),
      choice(
        "refresh",
        "Figures",
        buttons({ refresh: "Refresh" }, () => this.tell("refresh", {})),
      ),
    );
  }

  /** The places that the surface in the iframe has. */
  offerPaths(surface) {
    this.paths.replaceChildren(...buttons(PATHS[surface], (path) => this.tell("navigate", { path })).children);
  }

  regions() {
    const named = Object.fromEntries([["", "All"], ...REGIONS.map((region) => [region, region])]);
    return radios("region", named, (region) =>
      this.choose("set-filter", { "orders.region": region ? [region] : [] }, !region),
    );
  }

  /** Tells the embed, and remembers it unless every embed begins so. */
  choose(name, payload, isDefault) {
    if (isDefault) this.chosen.delete(name);
    else this.chosen.set(name, payload);
    this.tell(name, payload);
  }

  /** An embed has begun, and knows nothing of what was chosen before: it is told again. */
  repeat() {
    for (const [name, payload] of this.chosen) this.tell(name, payload);
  }

  tell(name, payload) {
    send(this.iframe, this.origin, name, payload);
  }
}

function titles(themes) {
  return Object.fromEntries(Object.entries(themes).map(([name, theme]) => [name, theme.title]));
}

function choice(action, title, controls) {
  return make(
    "fieldset",
    { "data-action": action },
    make("legend", {}, title, " ", make("code", {}, action)),
    controls,
  );
}

/** One of several; the first is chosen. */
function radios(name, named, onchoose) {
  return make(
    "div",
    { class: "choices" },
    Object.entries(named).map(([value, title], place) =>
      make(
        "label",
        {},
        make("input", { type: "radio", name, value, checked: place === 0, onchange: () => onchoose(value) }),
        make("span", { "data-value": value }, title),
      ),
    ),
  );
}

function buttons(named, onpress) {
  return make(
    "div",
    { class: "choices" },
    Object.entries(named).map(([value, title]) =>
      make("button", { type: "button", value, onclick: () => onpress(value) }, title),
    ),
  );
}
