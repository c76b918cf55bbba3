/** The mail catcher as a process. Arguments: port for SMTP, port for HTTP, address to listen on. */
import type { ReadyMessage } from "./guard.ts";
import { startMailCatcher } from "./mail-catcher.ts";

const [smtpPort, httpPort, host = "127.0.0.1"] = process.argv.slice(2);
const catcher = await startMailCatcher({ smtpPort: Number(smtpPort ?? 0), httpPort: Number(httpPort ?? 0), host });
process.send?.({ type: "ready", port: catcher.httpPort } satisfies ReadyMessage);
console.log(`SMTP on ${catcher.smtpPort}, HTTP on ${catcher.httpPort}`);
