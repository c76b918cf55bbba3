/** The mail catcher as a process: ports for SMTP and HTTP are its arguments. */
import type { ReadyMessage } from "./guard.ts";
import { startMailCatcher } from "./mail-catcher.ts";

const [smtpPort, httpPort] = process.argv.slice(2).map(Number);
const catcher = await startMailCatcher({ smtpPort: smtpPort ?? 0, httpPort: httpPort ?? 0, host: "127.0.0.1" });
process.send?.({ type: "ready", port: catcher.httpPort } satisfies ReadyMessage);
console.log(`SMTP on ${catcher.smtpPort}, HTTP on ${catcher.httpPort}`);
