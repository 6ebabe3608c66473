// AI questions: each is submitted, then answered, failed or never answered.

import { make } from "./dom.js";
import { DIMENSIONS, sumBy, total } from "./orders.js";

const ANSWER_MS = [900, 1800];
const AGENT = "analyst";

/** The input, the suggestions and the conversation. `embed` has words(), filters and sendEvent(). */
export class Questions {
  constructor(embed, { isWhole }) {
    this.embed = embed;
    this.isWhole = isWhole; // the chat surface, and not a part of another surface
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
    this.log.replaceChildren(...this.turns.map((one) => turn(one, words)));
    this.log.scrollTop = this.log.scrollHeight;
  }

  suggestions(words) {
    const suggestion = (question, end) => {
      const attributes = { type: "button", class: `suggestion ${end}`, onclick: () => this.ask(question, end) };
      const content = [make("span", {}, question), make("small", {}, words[end])];
      return make("li", {}, make("button", attributes, content));
    };
    const questions = [[words.best, "answers"], [words.forecast, "fails"], [words.every, "hangs"]];
    return make("ul", { class: "suggestions" }, questions.map((one) => suggestion(...one)));
  }

  async ask(query, end) {
    const { embed, chatId } = this;
    const one = { query, answer: null, end };
    this.turns.push(one);
    this.showTurns();
    // A chat has one agent from its start; on other surfaces only the answer names it.
    embed.sendEvent("ai-query", { query, status: "submitted", chatId, ...(this.isWhole && { agentId: AGENT }) });
    if (end === "hangs") return;
    await new Promise((resolve) => setTimeout(resolve, ANSWER_MS[0] + Math.random() * (ANSWER_MS[1] - ANSWER_MS[0])));
    const isAnswered = end === "answers";
    one.answer = isAnswered ? this.answer(query) : embed.words().failed;
    one.isFailed = !isAnswered;
    embed.sendEvent("ai-query", { query, status: isAnswered ? "completed" : "error", chatId, agentId: AGENT });
    this.showTurns();
  }

  answer(query) {
    const { embed } = this;
    const words = embed.words();
    if (query !== words.best) return words.generic(words.money(total("orders.revenue", embed.filters)));
    const [best] = growth().sort((one, other) => other.share - one.share);
    return words.answer(best.region, words.share(best.share));
  }
}

function growth() {
  const halves = (region) => {
    const sums = sumBy("orders.revenue", "orders.month", { "orders.region": [region] }).map((month) => month.sum);
    const sum = (part) => part.reduce((one, other) => one + other, 0);
    return sum(sums.slice(6)) / sum(sums.slice(0, 6)) - 1;
  };
  return DIMENSIONS["orders.region"].map((region) => ({ region, share: halves(region) }));
}

function turn(one, words) {
  const answer = one.answer ?? make("span", { class: "thinking" }, words.thinking, make("i"), make("i"), make("i"));
  return make(
    "li",
    {},
    make("p", { class: "question" }, one.query),
    make("p", { class: one.isFailed ? "answer failed" : "answer" }, answer),
  );
}
