// npm test; further arguments go to mocha
import { launch } from "./launch.mjs";

launch("test-main.ts");
