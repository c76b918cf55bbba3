/** `npm start`: the whole stack, until Ctrl-C. `npm run start:held`: after a restore, with every send held first. */
import { relative } from "node:path";
import { buildConsole } from "../console/build.ts";
import { signInLink } from "./console-link.ts";
import { readStackSettings } from "./settings.ts";
import { Stack } from "./stack.ts";
import { banner, explain, onSignals, printedStep } from "./terminal.ts";

async function main(): Promise<void> {
  const settings = readStackSettings(process.env);
  const stack = new Stack({
    settings,
    source: process.env,
    holdsSends: process.argv.includes("--hold-sends"),
    step: printedStep,
    say: (message) => console.log(message),
  });

  let stopping = false;
  onSignals(
    async () => {
      stopping = true;
      console.log("\nStopping; once more to force");
      await stack.stop();
      process.exit(0);
    },
    async () => {
      await stack.kill();
      process.exit(1);
    },
  );

  const startedAt = performance.now();
  console.log("Starting Mailkeel");
  try {
    await printedStep("console", () => buildConsole());
    const { content } = await stack.start();
    const signIn = await signInLink(content);
    console.log(`  ready after ${((performance.now() - startedAt) / 1_000).toFixed(1)} s`);
    const inside = relative(process.cwd(), settings.DATA_DIR);
    console.log(banner(content, signIn, inside.startsWith("..") ? settings.DATA_DIR : inside));
  } catch (error) {
    if (stopping) return;
    await stack.stop();
    throw error;
  }
}

main().catch((error) => {
  console.error(`\nMailkeel could not start.\n${explain(error)}`);
  process.exit(1);
});
