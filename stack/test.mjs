// npm test
import { launch } from "./launch.mjs";

await launch("test/run.ts", true);
