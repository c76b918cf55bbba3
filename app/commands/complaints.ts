import { openLog } from "../../config/log.ts";
import { RESOURCE_TYPES } from "../../db/entities/send.ts";
import { ApiError } from "../../domain/errors.ts";
import { recordComplaint, withdrawComplaint } from "../../domain/reports/complaints.ts";
import type { SendResource } from "../../domain/sends/resource.ts";
import { type Commands, command, option, required } from "../command.ts";
import { address, reasonText } from "../options.ts";
import { inTenant, ownerOf } from "../session.ts";

const OF_MAIL = {
  newsletter: option("<id>", "the newsletter"),
  campaign: option("<id>", "the campaign"),
  email: required("<address>", "address of the recipient who complained", address),
};

/** @throws {ApiError} `validation_failed` unless the options name one newsletter or one campaign */
function resourceOf(options: Record<(typeof RESOURCE_TYPES)[number], string | undefined>): SendResource {
  const [type, ...others] = RESOURCE_TYPES.filter((known) => options[known] !== undefined);
  const id = type && options[type];
  if (type !== undefined && id !== undefined && others.length === 0) return { type, id };
  throw new ApiError("validation_failed", "Name the newsletter with --newsletter, or the campaign with --campaign.");
}

/** Complaints of recipients that came in another way than by a report. */
export const commands: Commands = {
  "complaint:record": command(
    "record that a recipient called a newsletter or a campaign spam",
    OF_MAIL,
    async (session, { email, ...options }) => {
      const resource = resourceOf(options);
      const tenant = await ownerOf(session, `${resource.type}s`, resource.id);
      const recorded = await inTenant(session, tenant, (em) =>
        recordComplaint(em, tenant, { resource, email }, session.env),
      );
      return {
        text: recorded ? "Recorded; the address is suppressed" : "Recorded already; nothing changed",
        data: { [resource.type]: resource.id, recorded },
      };
    },
  ),

  "complaint:withdraw": command(
    "take a complaint that was false out of the team's complaint rate; its address stays suppressed",
    { ...OF_MAIL, reason: required("<text>", "why it does not count, kept with the withdrawal", reasonText) },
    async (session, { email, reason, ...options }) => {
      const resource = resourceOf(options);
      const tenant = await ownerOf(session, `${resource.type}s`, resource.id);
      const mail = await inTenant(session, tenant, (em) => withdrawComplaint(em, tenant, { resource, email }, reason));
      const log = openLog(session.env, "app", session.terminal.stderr);
      if (mail) log.info({ ...mail, ...tenant, reason }, "a complaint is withdrawn");
      return {
        text: mail ? "Withdrawn; the address stays suppressed" : "Withdrawn already; nothing changed",
        data: { [resource.type]: resource.id, withdrawn: mail !== undefined },
      };
    },
  ),
};
