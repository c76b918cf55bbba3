// npm start
import { launch } from "./launch.mjs";

await launch("stack/main.ts", false);
