import type { Handler } from "htmlparser2";
import { limits } from "./template-problem.ts";

/** Real newsletters have a few thousand. */
const MAX_ELEMENTS = 20_000;
/** Newsletters of nested tables have about fifty. */
const MAX_DEPTH = 200;

/** Elements with a text that no reader of a mail sees. */
export const UNREAD: ReadonlySet<string> = new Set(["style", "script", "title"]);

/** A parser's time per element grows with the depth. @returns a handler that throws `TemplateError` `limits` */
export function withinLimits(handler: Partial<Handler>): Partial<Handler> {
  let elements = 0;
  let depth = 0;
  return {
    ...handler,
    onopentag(...opened) {
      if (++elements > MAX_ELEMENTS) throw limits(`its body has more than ${MAX_ELEMENTS} elements`);
      if (++depth > MAX_DEPTH) throw limits(`the elements of its body are nested more than ${MAX_DEPTH} deep`);
      handler.onopentag?.(...opened);
    },
    onclosetag(...closed) {
      depth--;
      handler.onclosetag?.(...closed);
    },
  };
}
