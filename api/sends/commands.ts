import { z } from "zod";
import { afterCommit } from "../../db/transaction.ts";
import type { ErrorCode } from "../../domain/errors.ts";
import { type ClientCommand, commandSend } from "../../domain/sends/client-commands.ts";
import type { Broadcast } from "../../domain/sends/drafts/drafts.ts";
import { logMove, type SendMove } from "../../domain/sends/send-log.ts";
import type { RequestContext } from "../context.ts";
import { readRecord } from "../rest/record.ts";
import { idParamOf, ok, paragraphs, route, router, updateImpact } from "../rest/route.ts";
import type { ShownKind } from "./drafts.ts";
import { wakeUpSend } from "./send-updates.ts";

interface CommandText {
  /** Before and behind the name of the kind. */
  summary: readonly [string, string];
  description: string;
  errors?: readonly ErrorCode[];
}

const COMMANDS: Readonly<Record<ClientCommand, CommandText>> = {
  pause: {
    summary: ["Pause the send of a", ""],
    description: "Holds a send that is `SCHEDULED` or `SENDING`. Its credits stay reserved.",
  },
  resume: {
    summary: ["Continue the send of a", "that is paused"],
    description:
      "Continues a send that a client paused, or that is paused because its sending accounts failed. One that complaints paused is 403 `complaint_rate_exceeded`; one that an operator of the service paused, or the service after a restore, is 409 `resource_state_invalid`.",
    errors: ["complaint_rate_exceeded"],
  },
  cancel: {
    summary: ["End the send of a", "for good"],
    description:
      "Ends a send that is `SCHEDULED`, `SENDING` or `PAUSED`. The credits of mails that were not sent are released once no mail is in flight; the day's send cap is not.",
  },
};

/** Notes a change of a send in the log, and wakes its workflow up, after the commit. */
export function followMove(ctx: RequestContext, move: SendMove | undefined): void {
  if (!move) return;
  ctx.locals.sendId = move.sendId;
  afterCommit(ctx.em, followMove, () => {
    logMove(ctx.log, move);
    wakeUpSend(ctx, move.sendId);
  });
}

export function commandRouter<T extends Broadcast, Shown extends z.ZodType>(kind: ShownKind<T, Shown>) {
  const { type, noun, shown } = kind;
  const idParam = `${type}Id`;
  const params = z.strictObject({ [idParam]: idParamOf(type, `The id of the ${type}.`) });

  const command = (name: ClientCommand) => {
    const { summary, description, errors = [] } = COMMANDS[name];
    return route(`POST /${type}s/{${idParam}}/${name}`, {
      scope: `${type}s:send`,
      isPatient: true,
      operationId: `${name}${noun}`,
      summary: summary.join(` ${type} `).trim(),
      description: paragraphs(
        description,
        "The answer shows the new status, which holds at once: from then on only mails in flight leave, and these settle by themselves. In any other status the answer is 409 `resource_state_invalid`.",
      ),
      errors: [...errors, "resource_state_invalid"],
    })
      .input(z.strictObject({ params }))
      .output(shown.schema)
      .mutation(async ({ ctx, input }) => {
        const id = input.params[idParam] ?? "";
        followMove(ctx, await commandSend(ctx.em, ctx.tenant, { type, id }, name, ctx.dryRun));
        const record = await readRecord(ctx.em, `${type}s`, shown.record, id);
        return ok(record, { impact: updateImpact(id, true) });
      });
  };

  return router({ pause: command("pause"), resume: command("resume"), cancel: command("cancel") });
}
