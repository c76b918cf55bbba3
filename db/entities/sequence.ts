import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, codes, holding, instant, tenancy, text } from "./shared.ts";

/** The facts of a sequence beside its row of `campaigns`, which holds its name, `status` and `statusReason`. */
export const SequenceSchema = defineEntity({
  name: "sequences",
  indexes: [{ properties: ["listId"] }],
  properties: {
    campaignId: code().primary(),
    ...tenancy,
    /** Its subscribers are mailed by the rules of a newsletter; null where it has a segment. */
    listId: code().nullable(),
    /** Its contacts are mailed by the rules of a campaign. */
    segmentId: code().nullable(),
    fromEmail: text("team"),
    /** Since it was started: gives domains, role and daily cap. */
    apiKeyId: code().nullable(),
    /** Of the last wave that was claimed. Temporal carries it too: a smaller one here means that Postgres lost commits. */
    wave: p.integer().default(0),
    /** Sends of waves that hold people. */
    openWaves: codes().default([]),
    claimedAt: instant().nullable(),
    /** Those who are members at the start enter it. */
    includeMembers: p.boolean().default(false),
    startedAt: instant().nullable(),
    membersNotedAt: instant().nullable(),
    /** When changed contacts, and when all people, were last looked at. */
    sweptAt: instant().nullable(),
    sweptAllAt: instant().nullable(),
    /** When its steps were last saved, and by which member; null without a save in the console. Pauses and waves change neither. */
    updatedAt: instant().defaultRaw("now()"),
    updatedBy: code().nullable(),
  },
});

export const ENROLMENT_STATES = ["PRESENT", "ACTIVE", "COMPLETED", "LEFT"] as const;
export type EnrolmentState = (typeof ENROLMENT_STATES)[number];

/** A step keeps the id that the team chose; its place is that among all steps, also removed ones. */
export const SequenceStepSchema = defineEntity({
  name: "sequence_steps",
  properties: {
    campaignId: code().primary(),
    stepId: code().primary(),
    place: p.integer(),
    versionId: code(),
    removedAt: instant().nullable(),
  },
});

/** Once its sequence was started, its content never changes: a wave names the version that it mails. */
export const SequenceStepVersionSchema = defineEntity({
  name: "sequence_step_versions",
  indexes: [{ properties: ["campaignId"] }],
  properties: {
    id: code().primary(),
    campaignId: code(),
    stepId: code(),
    /** After the step before, or after entering. */
    waitMinutes: p.integer(),
    /** `HH:MM` in the team's time zone; null is any time, and no day is any day. */
    timeOfDay: code().nullable(),
    /** ISO weekdays, 1 Monday to 7 Sunday. */
    sendDays: p
      .array((value) => Number(value))
      .columnType("smallint[]")
      .default([]),
    subject: text("team"),
    preheader: text("team").nullable(),
    body: text("team"),
    /** The document that `body` is compiled from; null of HTML that was written as such. */
    blocks: holding("team", p.json<unknown>()).nullable(),
    stopIf: holding("team", p.json<unknown>()).nullable(),
    skipIf: holding("team", p.json<unknown>()).nullable(),
    /** Mails that a server accepted, that were opened, and with a link that was followed: sums of `analytics_changes`. */
    sent: p.integer().default(0),
    opened: p.integer().default(0),
    clicked: p.integer().default(0),
    createdAt: instant().defaultRaw("now()"),
    /** The member who saved it; null where it was no save in the console. */
    writtenBy: code().nullable(),
  },
});

/** A person in a sequence, once, by the hash of their address. Times are the database's. */
export const SequenceEnrolmentSchema = defineEntity({
  name: "sequence_enrolments",
  uniques: [{ properties: ["campaignId", "memberId"] }],
  properties: {
    campaignId: code().primary(),
    /** See `hashAddress`. */
    addressHash: code().primary(),
    /** The subscriber or contact. */
    memberId: code(),
    state: code().$type<EnrolmentState>(),
    /** Why they LEFT. */
    reason: code().nullable(),
    /** The last step that they got or skipped, and when; null before the first. */
    passedStepId: code().nullable(),
    passedAt: instant().nullable(),
    /** The step that they wait for; of a person who LEFT, the one that they waited for. */
    stepId: code().nullable(),
    dueAt: instant().nullable(),
    /** When it fell due, where a resume has spread what waited: `dueAt` is later. */
    fellDueAt: instant().nullable(),
    /** The wave that holds them, and their row in its ledger. */
    sendId: code().nullable(),
    seq: p.integer().nullable(),
    enteredAt: instant().defaultRaw("now()"),
  },
});

/** Written with what a sequence's workflow has to see, and deleted when it was woken. */
export const SequenceWakeSchema = defineEntity({
  name: "sequence_wakes",
  properties: {
    seq: p.bigint().primary().autoincrement(),
    campaignId: code(),
  },
});
