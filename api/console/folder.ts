import { resolve } from "node:path";

/** Where `npm run console` puts the built console, beside the other things that are made once for a version. */
export const CONSOLE_FOLDER = resolve(import.meta.dirname, "../../built/console");
