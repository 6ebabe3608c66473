// Writes the modules that a server sends, and their types, into a folder: `node build.js FOLDER`, after `tsc`.

import { build } from "esbuild";
import { readFileSync, writeFileSync } from "node:fs";

const [folder] = process.argv.slice(2);

const bundle = (entry, name, options = {}) =>
  build({
    entryPoints: [`src/${entry}.ts`],
    outfile: `${folder}/${name}.js`,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    ...options,
  });

// The fields of `Delivery` in forwarder.ts. The module uses no object of the browser with properties of these names.
await bundle("element", "forwarder", { mangleProps: /^(texts|bytes|saved|sent|head)$/ });
await bundle("actions", "actions");

// One file of types for each module, for pages that copy it.
const types = (name, ...sources) => {
  const texts = sources.map((source) => readFileSync(`dist/${source}.d.ts`, "utf8"));
  writeFileSync(`${folder}/${name}.d.ts`, texts.join("\n").replace(/^import .*\n/gm, ""));
};
types("forwarder", "events", "forwarder", "element");
types("actions", "actions");
