// AI questions. A question has an answer, an error, or no answer at all.

import { make } from "./dom.js";
import { DIMENSIONS, sumBy, total } from "./orders.js";

const ANSWER_MS_MIN = 900;
const ANSWER_MS_MAX = 1800;
const AGENT = "analyst";

/** The input, the suggestions and the conversation. `embed` has words(), filters and sendEvent(). */
export class Questions {
  constructor(embed, { isWhole }) {
    this.embed = embed;
    this.isWhole = isWhole; // whether the chat is the whole surface, instead of a part of another surface
    this.chatId = `c_${Math.random().toString(16).slice(2, 8)}`;
    this.turns = [];
    this.log = make("ol", { class: "log", "aria-live": "polite" });
    this.element = make("section", { class: isWhole ? "questions whole" : "questions" });
    this.redraw();
  }

  redraw() {
    const words = this.embed.words();
    const field = make("input", {
      name: "question",
      autocomplete: "off",
      maxlength: "300",
      required: true,
      placeholder: words.ask,
      "aria-label": words.ask,
    });
    const onsubmit = (event) => {
      event.preventDefault();
      this.ask(field.value.trim(), "answers");
      field.value = "";
    };
    const form = make("form", { onsubmit }, field, make("button", { type: "submit" }, words.send));
    const heading = this.isWhole ? [make("h1", {}, words.chat), make("p", { class: "intro" }, words.intro)] : [];
    this.element.replaceChildren(...heading, this.suggestions(words), this.log, form);
    this.showTurns();
  }

  // Redraws only the conversation, so that the input keeps its text.
  showTurns() {
    const words = this.embed.words();
    this.log.replaceChildren(...this.turns.map((turn) => turnElement(turn, words)));
    this.log.scrollTop = this.log.scrollHeight;
  }

  suggestions(words) {
    const suggestion = (question, outcome) => {
      const attributes = { type: "button", class: `suggestion ${outcome}`, onclick: () => this.ask(question, outcome) };
      const content = [make("span", {}, question), make("small", {}, words[outcome])];
      return make("li", {}, make("button", attributes, content));
    };
    return make(
      "ul",
      { class: "suggestions" },
      suggestion(words.best, "answers"),
      suggestion(words.forecast, "fails"),
      suggestion(words.every, "hangs"),
    );
  }

  /** Asks a question. The outcome is `answers`, `fails` or `hangs`. */
  async ask(query, outcome) {
    const { embed, chatId } = this;
    const turn = { query, answer: null, isFailed: false };
    this.turns.push(turn);
    this.showTurns();
    // A chat has one agent from its start. On other surfaces, only the answer names the agent.
    embed.sendEvent("ai-query", { query, status: "submitted", chatId, ...(this.isWhole && { agentId: AGENT }) });
    if (outcome === "hangs") return;
    const delayMs = ANSWER_MS_MIN + Math.random() * (ANSWER_MS_MAX - ANSWER_MS_MIN);
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    turn.isFailed = outcome === "fails";
    turn.answer = turn.isFailed ? embed.words().failed : this.answer(query);
    embed.sendEvent("ai-query", { query, status: turn.isFailed ? "error" : "completed", chatId, agentId: AGENT });
    this.showTurns();
  }

  /** Returns the region with the largest growth for the suggested question, and the revenue for any other. */
  answer(query) {
    const { embed } = this;
    const words = embed.words();
    if (query !== words.best) return words.generic(words.money(total("orders.revenue", embed.filters)));
    const growth = new Map(DIMENSIONS["orders.region"].map((region) => [region, growthOf(region)]));
    const [[region, share]] = [...growth].sort(([, one], [, other]) => other - one);
    return words.answer(region, words.share(share));
  }
}

/** Returns the growth of a region's revenue from the first six months to the last six, as a share. */
function growthOf(region) {
  const sums = sumBy("orders.revenue", "orders.month", { "orders.region": [region] }).map((month) => month.sum);
  const sum = (numbers) => numbers.reduce((subtotal, number) => subtotal + number, 0);
  return sum(sums.slice(6)) / sum(sums.slice(0, 6)) - 1;
}

function turnElement({ query, answer, isFailed }, words) {
  const waiting = () => make("span", { class: "thinking" }, words.thinking, make("i"), make("i"), make("i"));
  return make(
    "li",
    {},
    make("p", { class: "question" }, query),
    make("p", { class: isFailed ? "answer failed" : "answer" }, answer ?? waiting()),
  );
}
