import { shownAs } from "../openapi/schemas.ts";
import { endpointsOf } from "../rest/endpoints.ts";
import { consoleRouter } from "./router.ts";

/** The inputs of all writes by the names of their procedures, as JSON Schema: pages check forms by them. */
export function inputSchemas() {
  const writes = endpointsOf(consoleRouter).filter(({ type }) => type === "mutation");
  return Object.fromEntries(writes.map(({ name, meta }) => [name, shownAs(meta.input)]));
}
