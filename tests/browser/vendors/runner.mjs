// Runs the adapters on flows of messages, all in one process, and prints the events as JSON.
//
// The job in stdin is `{ modules, fixtures, isHostile }`: the folder of the compiled adapters, the fixtures, and whether
// to replace parts of the messages by hostile values.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const job = JSON.parse(readFileSync(0, "utf8"));
const CASE_MS_MAX = 1_000;

const fail = () => {
  throw new Error("read");
};
const thrower = new Proxy({}, { get: fail, has: fail, ownKeys: fail, getOwnPropertyDescriptor: fail });
const getters = Object.defineProperties({}, {
  type: { enumerable: true, get: fail },
  name: { enumerable: true, get: fail },
  detail: { enumerable: true, get: fail },
});
const cycle = { list: [] };
cycle.self = cycle;
cycle.list.push(cycle);
const bomb = Array.from({ length: 30 }).reduce((inner) => [inner, inner], "x");
const long = "x".repeat(3e6);

const JSON_VALUES = [
  null, true, 0, -1, 1e308, "", "{", "[1", "null", long, "\0\ud800", "https://a.example/?".repeat(1e4), "eyJ".repeat(1e5),
  [], [[]], {}, JSON.parse('{"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}}'),
  "/".repeat(8e3), Object.fromEntries(Array.from({ length: 110 }, (_, index) => [`key ${index}`, "/".repeat(8e3)])),
  { [long]: 1 }, Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`key ${index}`, long.slice(0, 99)])),
];
const VALUES = [
  ...JSON_VALUES, undefined, NaN, Infinity, 7n, Symbol("s"), fail, new Array(1e9), new Date(NaN), new Map([[1, 2]]), thrower,
  getters, cycle, bomb,
];
const NAMES = ["__proto__", "constructor", "toString", "hasOwnProperty", ""];

/** Yield a message with each of the values in each of its places. */
function* replaced(message, values) {
  yield* values;
  if (typeof message != "object" || message === null) return;
  for (const key of Object.keys(message))
    for (const inner of replaced(message[key], values)) yield Array.isArray(message) ? [inner] : { ...message, [key]: inner };
}

/** Return the messages of a fixture's kind with hostile values in all places. */
const hostileSteps = ({ kind }, step) => {
  if (kind == "json text") {
    const texts = [...replaced(step.send, JSON_VALUES)].map((message) => JSON.stringify(message));
    return [...VALUES, "[".repeat(1e5), ...texts, ...NAMES.map((type) => JSON.stringify({ type }))].map((send) => ({ ...step, send }));
  }
  if (kind == "element") return [...replaced(step.send.detail, VALUES)].map((detail) => ({ ...step, send: { detail } }));
  const names = NAMES.map((name) => ({ type: name, name, event: name, metabase: { type: name } }));
  return [...replaced(step.send, VALUES), ...names].map((send) => ({ ...step, send }));
};

/** Start the adapter of a fixture: return how to send a step, the events, and how to stop. */
const start = (module, { kind, target, place }) => {
  const events = [];
  const forwarder = { track: (event) => events.push(event) };
  const listeners = new Map();
  if (kind == "message" || kind == "json text") {
    const window = {};
    const encode = kind == "json text" && !job.isHostile ? JSON.stringify : (message) => message;
    return { events, send: ({ send }) => events.push(...module.adapt(encode(send), window)) };
  }
  if (kind == "callbacks") {
    const callbacks = module.callbacks(forwarder);
    return { events, send: ({ event, send }) => callbacks[event](send) };
  }
  if (kind == "element") {
    const element = Object.assign(new EventTarget(), target);
    const detach = module.attach(element, forwarder, place);
    return { events, detach, send: ({ event, send }) => element.dispatchEvent(new CustomEvent(event, send)) };
  }
  if (kind == "superset") {
    const dashboard = { observeDataMask: (observe) => listeners.set("observe", observe) };
    const detach = module.attach(dashboard, forwarder, place);
    return { events, detach, send: ({ event, send }) => event == "attach" || listeners.get("observe")(send) };
  }
  const sdk = {
    on: (name, listener) => listeners.set(name, listener),
    off: (name, listener) => listeners.get(name) == listener && listeners.delete(name),
    getId: () => target?.reportId,
  };
  const detach = module.attach(sdk, forwarder, place);
  return { events, detach, send: ({ event, send }) => listeners.get(event)?.(send) };
};

const results = [];
// Node reports an exception of an event listener here instead of throwing it.
const thrown = [];
process.on("uncaughtException", (error) => thrown.push(String(error)));

for (const fixture of job.fixtures) {
  const module = await import(pathToFileURL(`${job.modules}/${fixture.vendor}.js`).href);
  for (const flow of fixture.flows) {
    const { events, send, detach } = start(module, fixture);
    const steps = [];
    for (const step of flow.steps.flatMap((one) => (job.isHostile ? hostileSteps(fixture, one) : [one]))) {
      const before = performance.now();
      try {
        send(step);
      } catch (error) {
        thrown.push(`${fixture.vendor} ${step.event ?? ""}: ${error.stack}`);
      }
      const duration = performance.now() - before;
      if (duration > CASE_MS_MAX) thrown.push(`${fixture.vendor} ${step.event ?? ""}: took ${duration} ms`);
      steps.push(events.splice(0));
    }
    detach?.();
    if (detach) flow.steps.forEach(send);
    const distinct = [...new Set(steps.flat().map((event) => JSON.stringify(event)))].map((event) => JSON.parse(event));
    results.push({ name: `${fixture.vendor}: ${flow.name}`, steps: job.isHostile ? [distinct] : steps, afterDetach: events });
  }
}
console.log(JSON.stringify({ results, thrown, polluted: {}.polluted ?? null }));
