/** `npm run worker`: one pool of workers; with `--stack` beside a running `npm start`, with its settings. */
import { SettingsError } from "../config/env.ts";
import { joinStack } from "./join.ts";

const option = process.argv.indexOf("--stack");
if (option !== -1) {
  process.argv.splice(option, 1);
  try {
    const variables = await joinStack(process.env);
    for (const name of Object.keys(process.env)) if (!(name in variables)) delete process.env[name];
    Object.assign(process.env, variables);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    console.error(error.message);
    process.exit(1);
  }
}
await import("../workers/main.ts");
