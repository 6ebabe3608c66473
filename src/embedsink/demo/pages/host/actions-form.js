// Controls for the six actions of spec 6.5. Each change sends one message to the embed.

import { send } from "/actions.js";
import { make } from "./dom.js";

const SCHEMES = { auto: "Auto", light: "Light", dark: "Dark" };
const THEMES = {
  marl: { primaryColor: "#3b5bdb", borderRadius: 8, font: "Inter, system-ui, sans-serif" },
  fernway: { primaryColor: "#1d6b52", borderRadius: 14, font: "Inter, system-ui, sans-serif" },
  plum: { primaryColor: "#9c36b5", borderRadius: 2, font: "Georgia, serif" },
};
const THEME_TITLES = { marl: "Marl", fernway: "Fernway", plum: "Plum" };
const LOCALES = { en: "English", "de-AT": "Deutsch", fr: "Français" };
const REGIONS = { "": "All", North: "North", East: "East", South: "South", West: "West" };
const PATHS = {
  dashboard: { "/dashboards/d_orders": "Orders", "/dashboards/d_deliveries": "Deliveries" },
  app: { "/home": "Home", "/workbooks/wb_114": "Workbook", "/folders/shared": "Shared" },
  chat: { "/chat": "Chat" },
};

export class ActionsForm {
  constructor(form, { iframe, origin }) {
    Object.assign(this, { iframe, origin });
    // The values other than the embed's defaults, by action.
    this.chosen = new Map();
    form.addEventListener("submit", (event) => event.preventDefault());
    this.paths = make("div", { class: "choices" });
    const field = (action, title, controls) =>
      make("fieldset", { "data-action": action }, make("legend", {}, title, " ", make("code", {}, action)), controls);
    const choice = (action, title, name, options, payloadOf) =>
      field(
        action,
        title,
        radios(name, options, (value, isDefault) => this.choose(action, payloadOf(value), isDefault)),
      );
    form.append(
      choice("set-color-scheme", "Colours", "scheme", SCHEMES, (scheme) => ({ scheme })),
      choice("set-theme", "Theme", "theme", THEME_TITLES, (name) => ({ embedTheme: THEMES[name] })),
      choice("set-locale", "Language", "locale", LOCALES, (locale) => ({ locale })),
      choice("set-filter", "Region", "region", REGIONS, (region) => ({ "orders.region": region ? [region] : [] })),
      field("navigate", "Go to", this.paths),
      field("refresh", "Data", buttons({ refresh: "Refresh" }, () => this.send("refresh", {}))),
    );
  }

  /** Offers the pages of a surface. */
  offerPaths(surface) {
    this.paths.replaceChildren(...buttons(PATHS[surface], (path) => this.send("navigate", { path })).children);
  }

  /** Sends an action, and stores it unless it is the embed's default. */
  choose(name, payload, isDefault) {
    if (isDefault) this.chosen.delete(name);
    else this.chosen.set(name, payload);
    this.send(name, payload);
  }

  /** Sends the stored actions to an embed that has just started. */
  repeat() {
    for (const [name, payload] of this.chosen) this.send(name, payload);
  }

  send(name, payload) {
    send(this.iframe, this.origin, name, payload);
  }
}

/** Returns radio buttons. The first option is the default. */
function radios(name, options, onchoose) {
  const option = ([value, title], index) =>
    make(
      "label",
      {},
      make("input", { type: "radio", name, value, checked: !index, onchange: () => onchoose(value, !index) }),
      make("span", { "data-value": value }, title),
    );
  return make("div", { class: "choices" }, Object.entries(options).map(option));
}

function buttons(options, onpress) {
  const button = ([value, title]) => make("button", { type: "button", value, onclick: () => onpress(value) }, title);
  return make("div", { class: "choices" }, Object.entries(options).map(button));
}
