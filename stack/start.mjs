// npm start
import { launch } from "./launch.mjs";

launch("stack/main.ts");
