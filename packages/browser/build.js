// Builds the npm package into dist, and the modules that a server sends into a folder: `node build.js FOLDER`, after `tsc`.

import { build } from "esbuild";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { minify } from "terser";

const [folder] = process.argv.slice(2);
const common = { format: "esm", target: "es2022" };

// The modules of the package don't come from a server. Bundlers would rewrite `import.meta.url`.
await build({
  ...common,
  entryPoints: ["src/**/*.ts"],
  outdir: "dist",
  define: { IN_PACKAGE: "true", "import.meta.url": "undefined" },
});

/** Write a module with everything that it imports. */
const serve = async (entry, name, options = {}) => {
  const { outputFiles } = await build({
    ...common,
    entryPoints: [`src/${entry}.ts`],
    bundle: true,
    minify: true,
    write: false,
    define: { IN_PACKAGE: "false" },
    ...options,
  });
  // esbuild shortens the fields of objects, and terser saves another 3 %.
  const { code } = await minify(outputFiles[0].text, {
    module: true,
    ecma: 2020,
    compress: { passes: 3, unsafe_arrows: true },
  });
  mkdirSync(dirname(`${folder}/${name}`), { recursive: true });
  writeFileSync(`${folder}/${name}.js`, code);
};

/** Write one file of types for a module, for pages that copy it. */
const declare = (name, ...sources) => {
  const texts = sources.map((source) => readFileSync(`dist/${source}.d.ts`, "utf8"));
  writeFileSync(`${folder}/${name}.d.ts`, texts.join("\n").replace(/^import .*\n/gm, ""));
};

if (folder) {
  // The fields of `Delivery` in forwarder.ts. The module uses no object of the browser with properties of these names.
  await serve("element", "forwarder", { mangleProps: /^(name|head|texts|bytes|time|saved|sent)$/ });
  await serve("actions", "actions");
  declare("forwarder", "events", "forwarder");
  declare("actions", "actions");
  const vendors = existsSync("src/vendors") ? readdirSync("src/vendors", { withFileTypes: true }) : [];
  for (const file of vendors)
    if (file.isFile()) await serve(`vendors/${file.name}`.slice(0, -3), `vendors/${file.name}`.slice(0, -3));
}
