/** Measurements: `npm run bench -- <name> [options]` */
import { Command } from "commander";
import { wholeNumber } from "../app/options.ts";
import { type BenchReport, toText } from "./report.ts";

const program = new Command("bench")
  .description("Measures Mailkeel. Without --stack, a stack is brought up on free ports with data of its own.")
  .configureHelp({ showGlobalOptions: true })
  .option("--json", "print one JSON object")
  .showHelpAfterError("(add --help for the options)");

function show(report: BenchReport): void {
  console.log(program.opts<{ json?: boolean }>().json ? JSON.stringify(report) : toText(report));
  if (report.problems.length > 0) process.exitCode = 1;
}

const withStackOptions = (command: Command): Command =>
  command.option("--stack <file>", "the stack.json of a running stack, e.g. .data/stack.json");

withStackOptions(program.command("send"))
  .description("a newsletter from preview to the last mail: rates, CPU, memory, and whether all of it is right")
  .option("--recipients <n>", "size of the list", wholeNumber(1), 100_000)
  .option("--latency-ms <n>", "how long the SMTP server takes to answer a mail", wholeNumber(0), 0)
  .option("--connections <n>", "connections the sending account allows", wholeNumber(1, 1_000), 100)
  .option("--repeat <n>", "sends that are measured", wholeNumber(1), 1)
  .option("--previews <n>", "previews whose median is told", wholeNumber(1), 5)
  .option("--catcher", "mail to the stack's mail catcher instead of the lean sink", false)
  .option("--cpu-prof <folder>", "write a CPU profile of each process of the stack there")
  .action(async (options) => show(await (await import("./send.ts")).benchSend(options)));

await program.parseAsync();
process.exit();
