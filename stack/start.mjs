// npm start
import { launch } from "./launch.mjs";

launch("main.ts");
