import { z } from "zod";
import { RESOURCE_TYPES } from "../../../db/entities/send.ts";
import { accessToSend } from "../../../domain/access/sessions.ts";
import { MAX_RECIPIENTS, readHours } from "../../../domain/analytics/hours.ts";
import { sumOf } from "../../../domain/analytics/overview.ts";
import { readDomains, readEndedSends } from "../../../domain/analytics/send-report.ts";
import { ApiError } from "../../../domain/errors.ts";
import { MAX_ID_LENGTH } from "../../../domain/ids.ts";
import { readProgress } from "../../../domain/sends/ledger/progress.ts";
import { reportGates } from "../../../domain/sends/plan/preview.ts";
import { Refusal } from "../../../domain/sends/refusal.ts";
import { sendScope } from "../../../domain/sends/resource.ts";
import { readAttention } from "../../../domain/teams/attention.ts";
import { ratesOf } from "../../analytics/present.ts";
import { router } from "../../rest/route.ts";
import { bodyOf, consoleQuery, noInput } from "../procedure.ts";

const id = z.string().min(1).max(MAX_ID_LENGTH);

/** Every gate of a draft, where a preview is refused by the first that is not met. It makes no preview. */
const gates = consoleQuery(
  { role: "VIEWER", input: bodyOf(z.strictObject({ kind: z.enum(RESOURCE_TYPES), id })), isHeavy: true },
  async ({ ctx: { em, vault, tenant, access, env }, input: { body } }) => {
    const resource = { type: body.kind, id: body.id };
    const member = { memberId: access.caller.memberId, role: access.role };
    const sender = await accessToSend(em, vault, tenant, member, sendScope(resource)).then(
      ({ caller }) => caller,
      (error) => {
        if (error instanceof ApiError) return error;
        throw error;
      },
    );
    const report = await reportGates(em, tenant, resource, sender, env.PREVIEW_WAIT_MS);
    const { counts, cap, complaintRate, available } = report;
    return {
      gates: report.gates.map(({ gate, refusal }) => ({
        gate,
        /** Null where it cannot be checked yet. */
        is_met: refusal === null ? null : refusal === undefined,
        code: refusal?.code ?? null,
        message: refusal?.message ?? null,
        detail: (refusal instanceof Refusal && refusal.detail) || null,
      })),
      recipients: counts,
      send_cap: cap && { limit: cap.limit, used_today: cap.usedToday, remaining: cap.remaining },
      credits_available: available,
      complaint_rate: complaintRate,
    };
  },
);

/** Of one newsletter or campaign, or of all that goes out now. */
const progress = consoleQuery(
  { role: "VIEWER", input: bodyOf(z.strictObject({ resource_id: id.optional() })) },
  ({ ctx: { em, tenant }, input: { body } }) => readProgress(em, tenant, body.resource_id),
);

/** When the people of a send first opened its mail, and first clicked in it, by hour. */
const hours = consoleQuery(
  { role: "VIEWER", input: bodyOf(z.strictObject({ resource_id: id })) },
  async ({ ctx: { em, tenant }, input: { body } }) => ({
    ...(await readHours(em, tenant, body.resource_id)),
    /** The hours of a larger send count the responses of this many recipients alone. */
    max_recipients: MAX_RECIPIENTS,
  }),
);

/** The recipients of a send by their domains. */
const domains = consoleQuery(
  { role: "VIEWER", isHeavy: true, input: bodyOf(z.strictObject({ resource_id: id })) },
  async ({ ctx: { em, tenant }, input: { body } }) => ({
    /** Null where the recipients are kept no longer. */
    domains: await readDomains(em, tenant, body.resource_id),
    max_recipients: MAX_RECIPIENTS,
  }),
);

/** The rates of the team's last sends, or of those before one, together, and the last of them by itself. */
const earlier = consoleQuery(
  { role: "VIEWER", input: bodyOf(z.strictObject({ resource_id: id.optional() })) },
  async ({ ctx: { em, tenant }, input: { body } }) => {
    const sends = await readEndedSends(em, tenant, body.resource_id);
    const [last] = sends;
    return {
      sends: sends.length,
      rates: ratesOf(sumOf(sends.map(({ counts }) => counts))),
      last: last ? { ...last, rates: ratesOf(last.counts) } : null,
    };
  },
);

const attention = consoleQuery({ role: "VIEWER", input: noInput }, ({ ctx: { em, tenant } }) =>
  readAttention(em, tenant),
);

export const overviewRouter = router({ gates, progress, hours, domains, earlier, attention });
