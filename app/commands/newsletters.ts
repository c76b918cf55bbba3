import { type Command, InvalidArgumentError } from "commander";
import { openLog } from "../../config/log.ts";
import { RESOURCE_TYPES } from "../../db/entities/send.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { ApiError } from "../../domain/errors.ts";
import { newId } from "../../domain/ids.ts";
import { recordComplaint, withdrawComplaint } from "../../domain/reports/complaints.ts";
import { BROADCASTS, setDraftTracking, setSendDays } from "../../domain/sends/drafts.ts";
import { type FoundSend, findSend } from "../../domain/sends/inspection.ts";
import { attachList, detachList } from "../../domain/sends/newsletters.ts";
import type { SendResource } from "../../domain/sends/resource.ts";
import { grantCredits, listCreditEntries, readCreditBalance, readCreditUsage } from "../../domain/teams/credits.ts";
import { address, nonEmpty, oneOf, reasonText, wholeNumber, withTenant, words } from "../options.ts";
import { inTenant, ownerOf, type Run, type TenantOptions, tenantOf } from "../session.ts";
import { WEEKDAYS } from "../weekdays.ts";

const DEFAULT_MOVEMENTS = 20;
const ANY_DAY = "any";
const TRACKING = ["on", "off", "team"] as const;

/**
 * Commands for facts that the API cannot set: a newsletter's lists, the send days and tracking of newsletters and
 * campaigns, credits and complaints.
 */
export function newsletterCommands(program: Command, run: Run): void {
  interface ListOptions {
    newsletter: string;
    list: string;
  }
  program
    .command("list:attach")
    .description("let a draft target a list")
    .requiredOption("--newsletter <id>", "the draft")
    .requiredOption("--list <id>", "the list")
    .action(({ newsletter, list }: ListOptions) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "newsletters", newsletter);
        await inTenant(session, tenant, (em) => attachList(em, newsletter, list));
        return { text: `${newsletter} targets ${list}`, data: { newsletter, list, attached: true } };
      }),
    );

  program
    .command("list:detach")
    .description("let a draft target a list no more")
    .requiredOption("--newsletter <id>", "the draft")
    .requiredOption("--list <id>", "the list")
    .action(({ newsletter, list }: ListOptions) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "newsletters", newsletter);
        await inTenant(session, tenant, (em) => detachList(em, newsletter, list));
        return { text: `${newsletter} no longer targets ${list}`, data: { newsletter, list, attached: false } };
      }),
    );

  for (const type of RESOURCE_TYPES) {
    program
      .command(`${type}:send-days`)
      .description("restrict the days on which a draft may start to go out, in the team's time zone")
      .requiredOption(`--${type} <id>`, "the draft")
      .requiredOption(
        "--days <days>",
        `comma-separated, of ${WEEKDAYS.join(", ")} or 1 to 7; ${ANY_DAY} lifts it`,
        weekdays,
      )
      .action(({ days, ...options }: { days: number[] } & { readonly [Kind in typeof type]: string }) =>
        run(async (session) => {
          const id = options[type];
          const tenant = await ownerOf(session, `${type}s`, id);
          const { sendDays } = await inTenant(session, tenant, (em) => setSendDays(em, BROADCASTS[type], id, days));
          const named = sendDays.map((day) => WEEKDAYS[day - 1]).join(", ");
          return { text: `${id} goes out on ${named || "any day"}`, data: { [type]: id, send_days: sendDays } };
        }),
      );

    program
      .command(`${type}:tracking`)
      .description("count opens and clicks of a draft's mails, or not, whatever the team's setting is")
      .requiredOption(`--${type} <id>`, "the draft")
      .argument("<switch>", `${TRACKING.join(", ")}: as the team's setting is at the confirm`, oneOf(TRACKING))
      .action((state: (typeof TRACKING)[number], options: { readonly [Kind in typeof type]: string }) =>
        run(async (session) => {
          const id = options[type];
          const tenant = await ownerOf(session, `${type}s`, id);
          const tracking = state === "team" ? null : state === "on";
          await inTenant(session, tenant, (em) => setDraftTracking(em, BROADCASTS[type], id, tracking));
          return {
            text: `Tracking of ${id} is ${state === "team" ? "left to the team's setting" : state}`,
            data: { [type]: id, tracking },
          };
        }),
      );
  }

  withTenant(program.command("credits:grant"))
    .description("give a team email credits")
    .requiredOption("--amount <credits>", "whole email credits", wholeNumber(1))
    .option("--cause <text>", "names the grant: a second one with the same cause changes nothing", nonEmpty)
    .action(({ amount, cause, ...options }: TenantOptions & { amount: number; cause?: string }) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        const balance = await inTenant(session, tenant, async (em) => {
          await grantCredits(em, tenant, amount, cause ?? newId("creditEntry"));
          return readCreditBalance(em, tenant);
        });
        return {
          text: `${balance.available} credits available, ${balance.reserved} reserved`,
          data: { team: tenant.teamId, credits: { ...balance } },
        };
      }),
    );

  withTenant(program.command("credits:show"))
    .description("print a team's email credits and their latest movements; with --send those of one send")
    .option("--send <id>", "a newsletter (nl_…), a campaign (cmp_…) or a send (send_…)")
    .option("--limit <number>", "so many movements at most", wholeNumber(1, 100_000), DEFAULT_MOVEMENTS)
    .action(({ send, limit, ...options }: TenantOptions & { send?: string; limit: number }, command: Command) =>
      run(async (session) => {
        const em = session.orm.em.fork();
        const found = send === undefined ? undefined : await findSend(em, send);
        if (found) refuseOtherTenant(found, options, command);
        const tenant = found ?? (await tenantOf(session, options));
        return showCredits(em, { teamId: tenant.teamId, environment: tenant.environment }, found?.sendId, limit);
      }),
    );

  const ofMail = (command: Command): Command =>
    command
      .option("--newsletter <id>", "the newsletter")
      .option("--campaign <id>", "the campaign")
      .requiredOption("--email <address>", "address of the recipient who complained", address);
  ofMail(program.command("complaint:record"))
    .description("record that a recipient called a newsletter or a campaign spam")
    .action(({ email, ...options }: ComplaintOptions) =>
      run(async (session) => {
        const resource = resourceOf(options);
        const tenant = await ownerOf(session, `${resource.type}s`, resource.id);
        const recorded = await inTenant(session, tenant, (em) =>
          recordComplaint(em, tenant, { resource, email }, session.env),
        );
        return {
          text: recorded ? "Recorded; the address is suppressed" : "Recorded already; nothing changed",
          data: { [resource.type]: resource.id, recorded },
        };
      }),
    );

  ofMail(program.command("complaint:withdraw"))
    .description("take a complaint that was false out of the team's complaint rate; its address stays suppressed")
    .requiredOption("--reason <text>", "why it does not count, kept with the withdrawal", reasonText)
    .action(({ email, reason, ...options }: ComplaintOptions & { reason: string }) =>
      run(async (session) => {
        const resource = resourceOf(options);
        const tenant = await ownerOf(session, `${resource.type}s`, resource.id);
        const mail = await inTenant(session, tenant, (em) =>
          withdrawComplaint(em, tenant, { resource, email }, reason),
        );
        if (mail) {
          const log = openLog(session.env, "app", session.terminal.stderr);
          log.info({ ...mail, ...tenant, reason }, "a complaint is withdrawn");
        }
        return {
          text: mail ? "Withdrawn; the address stays suppressed" : "Withdrawn already; nothing changed",
          data: { [resource.type]: resource.id, withdrawn: mail !== undefined },
        };
      }),
    );
}

interface ComplaintOptions {
  newsletter?: string;
  campaign?: string;
  email: string;
}

/** @throws {ApiError} `validation_failed` unless the options name one newsletter or one campaign */
function resourceOf(options: Omit<ComplaintOptions, "email">): SendResource {
  const [type, ...others] = RESOURCE_TYPES.filter((known) => options[known] !== undefined);
  const id = type && options[type];
  if (type !== undefined && id !== undefined && others.length === 0) return { type, id };
  throw new ApiError("validation_failed", "Name the newsletter with --newsletter, or the campaign with --campaign.");
}

/** @throws {ApiError} `validation_failed` when the options name another tenant than the send's */
function refuseOtherTenant({ sendId, teamId, environment }: FoundSend, options: TenantOptions, command: Command): void {
  const isEnvironmentNamed = command.getOptionValueSource("environment") !== "default";
  if ((options.team ?? teamId) === teamId && (!isEnvironmentNamed || options.environment === environment)) return;
  const owner = `team ${teamId}, ${environment.toLowerCase()}`;
  throw new ApiError("validation_failed", `${sendId} is a send of ${owner}: leave out --team and --environment.`);
}

async function showCredits(em: EntityManager, tenant: Tenant, sendId: string | undefined, limit: number) {
  const { available, reserved, consumed } = await readCreditUsage(em, tenant);
  const entries = await listCreditEntries(em, tenant, { sendId, limit });
  const lines = entries.map(
    ({ kind, amount, sendId: ofSend, cause, at }) => `${at}  ${kind}  ${amount}  ${ofSend ?? "-"}  ${cause}`,
  );
  return {
    text: [`${available} credits available, ${reserved} reserved, ${consumed} used this month`, ...lines].join("\n"),
    data: {
      team: tenant.teamId,
      environment: tenant.environment,
      credits: { available, reserved, consumed },
      movements: entries.map(({ sendId: ofSend, ...entry }) => ({ ...entry, send: ofSend })),
    },
  };
}

function weekdays(text: string): number[] {
  if (text === ANY_DAY) return [];
  return words(text).map((word) => {
    const day = /^[1-7]$/.test(word) ? Number(word) : WEEKDAYS.indexOf(word.slice(0, 3).toLowerCase()) + 1;
    if (day === 0) throw new InvalidArgumentError(`"${word}" is no weekday.`);
    return day;
  });
}
