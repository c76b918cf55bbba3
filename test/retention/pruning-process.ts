/** Prunes ledgers as `prune` does, in a process of its own, which a test kills. Its argument is the settings, as JSON. */
import { LEDGERS } from "../../domain/retention/ledgers.ts";
import { prune } from "../support/retention.ts";

await prune(JSON.parse(process.argv[2] ?? "{}"), { prunings: LEDGERS, mostRows: 100 });
process.exit();
