import { gzipSync } from "node:zlib";
import { shownAs } from "../openapi/schemas.ts";
import { endpointsOf } from "../rest/endpoints.ts";
import { consoleRouter } from "./router.ts";

let made: Buffer | undefined;

/** The inputs of all writes by the names of their procedures, as JSON Schema in JSON, compressed: pages check forms by them. */
export function inputSchemas(): Buffer {
  const writes = endpointsOf(consoleRouter).filter(({ type }) => type === "mutation");
  made ??= gzipSync(JSON.stringify(Object.fromEntries(writes.map(({ name, meta }) => [name, shownAs(meta.input)]))));
  return made;
}
