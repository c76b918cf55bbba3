import { sql } from "kysely";
import type { FieldValues } from "../../../db/entities/contact.ts";
import { type EntityManager, forTenant, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { lookupAddress } from "../../address.ts";
import { segmentContacts } from "../../audience/segments/segments.ts";
import { ApiError } from "../../errors.ts";
import { type ContentWarning, MAX_BYTES_SHOWN, MAX_SUBJECT_SHOWN } from "../../mail/content-warnings.ts";
import { examineContent, showInThread } from "../../mail/examination.ts";
import { cutInboxText, inboxText } from "../../mail/inbox-text.ts";
import { mergeValuesOf, type ShownMessage } from "../../mail/message.ts";
import { SAMPLE } from "../../mail/template.ts";
import { type ContentField, describeProblem } from "../../mail/template-problem.ts";
import type { MailResource } from "../resource.ts";
import { type Draft, readDraft } from "./draft.ts";
import { readInThread } from "./drafts.ts";
import { planMembers } from "./members.ts";

/** A draft as one person would see its mail. */
export interface ShownDraft extends ShownMessage {
  /** As inboxes show it after the subject. */
  preheader: string;
  from: { name: string | null; address: string } | null;
  to: ShownPerson;
  /** Records of the people whose mail it can be shown as. */
  people: "subscribers" | "contacts";
  /** The values are made up: they were asked for, or no person is targeted yet. */
  isSample: boolean;
  problems: DraftProblem[];
}

/** For which the draft is refused at its send-preview. */
interface DraftProblem {
  field: "subject" | "body";
  message: string;
}

/** A person who does not exist, with a name and every field, or without any. */
export const SAMPLES = ["sample", "nameless"] as const;

/** With which it is sent all the same. */
export interface DraftWarning {
  kind: ContentWarning["kind"] | "no_fallback" | "condition_without_tracking" | "empty_image" | "unsubscribed";
  message: string;
}

interface ShownPerson {
  email: string;
  firstName: string | null;
  lastName: string | null;
  listName: string | null;
  fields: FieldValues | null;
}

/** The hosts do not exist: a press on a link changes nothing. */
const LINKS = {
  unsubscribeUrl: "https://unsubscribe.invalid/",
  trackingUrl: "https://tracking.invalid/",
  webUrl: "https://web.invalid/",
};

/**
 * Fills the mail of a draft, of what was one, or of a step, with the values of a person.
 * @param as one of `SAMPLES`, or the address of a subscriber, or of a contact for a campaign; the first that it targets unless given
 */
async function fillDraft<Task extends "show" | "examine">(
  em: EntityManager,
  tenant: Tenant,
  resource: MailResource,
  as: string | undefined,
  task: Task,
) {
  const draft = await readDraft(em, tenant, resource, { lock: false });
  const sample = SAMPLES.find((name) => name === as);
  const person = sample ? undefined : await (draft.rules === "campaign" ? findContact : findSubscriber)(em, draft, as);
  if (!person && !sample && as !== undefined) {
    throw new ApiError("not_found", "No person of this team has that address.", { param: "person" });
  }
  const to = person ?? samplePerson(draft, sample === "nameless");
  // For its link in the footer.
  const tracking = draft.tracking === "OFF" ? undefined : { ownUrl: LINKS.trackingUrl };
  const content = { subject: draft.subject ?? "", html: draft.body ?? "", footer: draft.footer, tracking };
  const values = mergeValuesOf({ ...to, fields: to.fields ?? undefined, ...LINKS });
  const result = await readInThread(tenant.teamId, () => showInThread(tenant.teamId, task, content, values));
  const readProblems = async (): Promise<DraftProblem[]> =>
    (await examineContent(tenant.teamId, content, draft.fieldNames)).map((problem) => ({
      field: partOf(problem.field),
      message: describeProblem(problem),
    }));
  return { result, draft, to, isSample: !person, readProblems };
}

/**
 * @param as see `fillDraft`
 * @throws {ApiError} `not_found` for the draft, and naming `person`; `validation_failed` for a template that cannot be used;
 *   `filter_unsupported`; `rate_limit_exceeded`
 */
export async function showDraft(
  em: EntityManager,
  tenant: Tenant,
  resource: MailResource,
  as: string | undefined,
): Promise<ShownDraft> {
  const { result, draft, to, isSample, readProblems } = await fillDraft(em, tenant, resource, as, "show");
  const people = draft.rules === "campaign" ? "contacts" : "subscribers";
  const preheader = cutInboxText(inboxText(result.html));
  return {
    ...result,
    preheader,
    to,
    people,
    isSample,
    from: await readSender(em, draft),
    problems: await readProblems(),
  };
}

/** The HTML alone. @throws {ApiError} as `showDraft` */
export const showPage = async (em: EntityManager, tenant: Tenant, resource: MailResource, as: string | undefined) =>
  (await fillDraft(em, tenant, resource, as, "show")).result.html;

/** Before a send: for what it is refused, and what could be better, also for those who lack a value. @throws {ApiError} as `showDraft` */
export async function checkDraft(
  em: EntityManager,
  tenant: Tenant,
  resource: MailResource,
): Promise<{ problems: DraftProblem[]; warnings: DraftWarning[] }> {
  const { result, draft, readProblems } = await fillDraft(em, tenant, resource, undefined, "examine");
  const warnings = [
    ...(draft.asksForHits && draft.tracking === "OFF" ? [WITHOUT_TRACKING] : []),
    ...(await warnOfPeople(em, draft, result.bareTags)),
    ...(draft.emptyImages > 0 ? [emptyImages(draft.emptyImages)] : []),
    ...result.warnings.map(inWords),
  ];
  return { problems: await readProblems(), warnings };
}

const WITHOUT_TRACKING: DraftWarning = {
  kind: "condition_without_tracking",
  message:
    "A condition uses opens or clicks of this sequence. They are not counted, so that each person counts as having done neither.",
};

/** SQL: the addresses of subscribers who have left each of their lists. */
const leavers = (tenant: Tenant) => sql`
  with gone as materialized (
    select distinct u.subscriber_id as id from lists l
    join subscriptions u on u.list_id = l.id and u.status = 'UNSUBSCRIBED' and ${ofTenant(tenant, "u")}
    where ${ofTenant(tenant, "l")}
  )
  -- Without their tenant, by whose index they would be read for each row.
  select s.email from gone g join subscribers s on s.id = g.id
  where not (select bool_or(b.status = 'CONFIRMED') from subscriptions b
    where b.subscriber_id = g.id and ${ofTenant(tenant, "b")})`;

/**
 * Counts the people who would be mailed: those for whom a tag prints nothing, and of a campaign those who have left each of their lists,
 * since an opt-out of a list does not stop a campaign.
 */
async function warnOfPeople(em: EntityManager, draft: Draft, tags: readonly string[]): Promise<DraftWarning[]> {
  const isCampaign = draft.rules === "campaign" && !draft.isDrip;
  if (tags.length === 0 && !isCampaign) return [];
  const printedBy = (tag: string) => (tag.startsWith("fields.") ? sql`fields ->> ${tag.slice(7)}` : sql.ref(tag));
  const gaps = tags.map((tag) => sql`count(*) filter (where coalesce(${printedBy(tag)}, '') = '')`);
  // Without statistics, as after an import, Postgres would loop over the leavers for a condition: a filter hashes them.
  const left = isCampaign ? sql`count(*) filter (where email in (select email from leavers))` : sql`0`;
  const { rows } = await sql<{ people: number; gaps: number[]; left: number }>`
    with leavers as materialized (${isCampaign ? leavers(draft) : sql`select`})
    select count(*)::int as people, array[${sql.join(gaps)}]::int[] as gaps, (${left})::int as left
    from (${await planMembers(em, draft)}) members where permitted and not suppressed`.execute(kysely(em));
  const { people, gaps: counts, left: gone } = rows[0] ?? { people: 0, gaps: [], left: 0 };
  const message = `${gone} of these contacts ${gone === 1 ? "has" : "have"} unsubscribed from every list they were on.`;
  return [
    ...tags.flatMap((tag, i) => {
      const count = counts[i] ?? 0;
      const message = `${count} of ${people} people have no value for {{ ${tag} }}, and it has no fallback.`;
      return count > 0 ? { kind: "no_fallback" as const, message } : [];
    }),
    ...(gone > 0 ? [{ kind: "unsubscribed" as const, message }] : []),
  ];
}

const times = (count: number, one: string) => (count === 1 ? `One ${one}` : `${count} ${one}s`);
const emptyImages = (count: number): DraftWarning => ({
  kind: "empty_image",
  message: `${times(count, "image block")} without an image: choose one, or remove the block.`,
});
const SENTENCES: Record<ContentWarning["kind"], (count: number) => string> = {
  image_without_text: (count) => `${times(count, "image")} without an alternative text.`,
  empty_link: (count) => `${times(count, "link")} without an address.`,
  relative_link: (count) => `${times(count, "link")} without https:// that leads nowhere from an email.`,
  insecure_link: (count) => `${times(count, "link")} with http: in place of https:.`,
  bare_address: (count) => `${times(count, "web address")} in the text without a link.`,
  placeholder: (count) =>
    `${times(count, "text")} in square brackets: write your own in ${count === 1 ? "its" : "their"} place.`,
  long_subject: (count) => `The subject has ${count} characters; phones cut it after about ${MAX_SUBJECT_SHOWN}.`,
  no_postal_address: () => "Your team has no postal address, which many countries require by law in every email.",
  large: (count) => `The HTML has ${count} bytes; Gmail hides everything after the first ${MAX_BYTES_SHOWN}.`,
};
const inWords = ({ kind, count }: ContentWarning): DraftWarning => ({ kind, message: SENTENCES[kind](count) });

const partOf = (field: ContentField) => (field === "html" ? "body" : "subject");

function samplePerson({ fieldNames }: Draft, isNameless: boolean): ShownPerson {
  const { email, first_name: firstName, last_name: lastName, list_name: listName } = SAMPLE;
  if (isNameless) return { email, listName, firstName: null, lastName: null, fields: null };
  return {
    email,
    firstName,
    lastName,
    listName,
    fields: Object.fromEntries(fieldNames.map((name) => [name, "Sample"])),
  };
}

/** With the list for which they would get the mail, or else the first that is targeted, and the fields of the contact. */
async function findSubscriber(em: EntityManager, draft: Draft, email: string | undefined) {
  const tenant = { teamId: draft.teamId, environment: draft.environment };
  const targets = [...draft.targetIds];
  const columns = sql`coalesce(s.email_spelling, s.email) as email, s.first_name as "firstName",
    s.last_name as "lastName", l.name as "listName", k.fields`;
  const { segmentId } = draft;
  const selected =
    email === undefined && segmentId !== null
      ? sql`join (${await segmentContacts(forTenant(em, tenant), tenant, segmentId)}) k`
      : sql`left join contacts k`;
  const contact = sql`${selected} on ${ofTenant(tenant, "k")} and k.email = s.email`;
  const query =
    email === undefined
      ? sql`select ${columns} from subscriptions m
          join subscribers s on s.id = m.subscriber_id join lists l on l.id = m.list_id ${contact}
          where ${ofTenant(tenant, "m")} and m.list_id = any(${targets}) and m.status = 'CONFIRMED' limit 1`
      : sql`select ${columns} from subscribers s ${contact}
          left join subscriptions m on ${ofTenant(tenant, "m")} and m.subscriber_id = s.id
            and m.list_id = any(${targets}) and m.status = 'CONFIRMED'
          left join lists l on ${ofTenant(tenant, "l")} and l.id = coalesce(m.list_id, (${targets}::text[])[1])
          where ${ofTenant(tenant, "s")} and s.email = ${lookupAddress(email)} order by m.list_id limit 1`;
  const { rows } = await query.execute(kysely(em));
  return rows[0] as ShownPerson | undefined;
}

async function findContact(em: EntityManager, { targetIds: [segmentId], ...draft }: Draft, email: string | undefined) {
  const tenant = { teamId: draft.teamId, environment: draft.environment };
  if (email === undefined && segmentId === undefined) return undefined;
  const contacts =
    email === undefined
      ? sql`(${await segmentContacts(forTenant(em, tenant), tenant, segmentId ?? "")}) c where c.email_status = 'ACTIVE'`
      : sql`contacts c where ${ofTenant(tenant, "c")} and c.email = ${lookupAddress(email)}`;
  const { rows } = await sql<ShownPerson>`select coalesce(c.email_spelling, c.email) as email,
    c.first_name as "firstName", c.last_name as "lastName", null as "listName", c.fields from ${contacts} limit 1`.execute(
    kysely(em),
  );
  return rows[0];
}

/** Of a campaign, that of its first account. */
async function readSender(em: EntityManager, draft: Draft): Promise<ShownDraft["from"]> {
  const [address] = draft.fromAddresses;
  if (address === undefined) return null;
  const [account] = draft.accounts;
  if (draft.fromName !== null || !account) return { name: draft.fromName, address };
  const { display_name: name } = await kysely(em)
    .selectFrom("email_accounts")
    .select("display_name")
    .where("id", "=", account.id)
    .where(ofTenant(draft))
    .executeTakeFirstOrThrow();
  return { name, address };
}
