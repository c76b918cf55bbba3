// npm test
import { launch } from "./launch.mjs";

launch("test/run.ts");
