/** The app's command line, for changes that the API does not offer: `npm run app -- <command> [--json]` */
import { runCommand } from "./program.ts";

process.exitCode = await runCommand(process.argv.slice(2), process);
