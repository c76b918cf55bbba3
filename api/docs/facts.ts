import { STATUS_CODES } from "node:http";
import type { Env } from "../../config/env.ts";
import * as audit from "../../db/entities/audit.ts";
import { BIN_DAYS } from "../../db/entities/bin.ts";
import { ROLES } from "../../db/entities/team.ts";
import * as idempotency from "../../domain/access/idempotency.ts";
import * as keys from "../../domain/access/keys.ts";
import * as requests from "../../domain/access/request-limit.ts";
import { FORBIDDEN_PAIRS, roleHolds, SCOPES, SEND_SCOPES } from "../../domain/access/scopes.ts";
import * as address from "../../domain/address.ts";
import * as analytics from "../../domain/analytics/overview.ts";
import { CURRENT_API_VERSION, VERSIONS } from "../../domain/api-version.ts";
import * as confirmations from "../../domain/audience/confirmation-limits.ts";
import * as fields from "../../domain/audience/contact-fields.ts";
import * as rules from "../../domain/audience/rules.ts";
import * as unsubscribes from "../../domain/audience/unsubscribes.ts";
import { MOST_BINNED } from "../../domain/bin/bin.ts";
import { ERRORS } from "../../domain/errors.ts";
import * as proofs from "../../domain/forms/proof.ts";
import * as signups from "../../domain/forms/sign-up.ts";
import * as unconfirmed from "../../domain/forms/unconfirmed.ts";
import * as imports from "../../domain/import/import.ts";
import { DATE_PARTS } from "../../domain/mail/liquid-date.ts";
import { ALLOWED_FILTERS } from "../../domain/mail/liquid-engine.ts";
import { PROVIDERS, type ProviderNeed } from "../../domain/reports/providers.ts";
import { SOURCE_USER } from "../../domain/reports/source.ts";
import * as complaints from "../../domain/sends/complaint-rate.ts";
import * as campaigns from "../../domain/sends/drafts/drafts.ts";
import * as templates from "../../domain/sends/drafts/templates.ts";
import * as tokens from "../../domain/sends/plan/token.ts";
import * as plans from "../../domain/teams/plans.ts";
import * as tracking from "../../domain/tracking/label.ts";
import * as replays from "../../domain/webhooks/bulk-replay.ts";
import { EVENT_NAMES, EVENTS } from "../../domain/webhooks/catalogue.ts";
import * as attempts from "../../domain/webhooks/classify.ts";
import * as health from "../../domain/webhooks/endpoint-health.ts";
import * as headers from "../../domain/webhooks/headers.ts";
import * as retention from "../../domain/webhooks/retention.ts";
import * as rotation from "../../domain/webhooks/rotate.ts";
import * as tests from "../../domain/webhooks/test-delivery.ts";
import { MERGE_TAGS } from "../../lib/merge-tags.ts";
import * as contacts from "../contacts/schema.ts";
import * as lists from "../lists/schema.ts";
import * as adapter from "../rest/adapter.ts";
import * as deadline from "../rest/deadline.ts";
import { endpointsOf } from "../rest/endpoints.ts";
import * as http from "../rest/http.ts";
import * as keyed from "../rest/idempotency.ts";
import * as input from "../rest/input.ts";
import * as list from "../rest/list.ts";
import * as procedures from "../rest/procedures.ts";
import { appRouter } from "../router.ts";
import * as suppressions from "../suppressions/schema.ts";
import { durationText } from "../units.ts";
import * as webhooks from "../webhooks/schema.ts";

/** Modules whose constants guides name as they are called: `http.MAX_BODY_BYTES`. */
const MODULES = {
  ...{ adapter, deadline, http, input, keyed, list, procedures, requests },
  ...{ address, analytics, campaigns, complaints, confirmations, contacts, fields, idempotency, imports, keys, lists },
  ...{ plans, proofs, rules, signups, suppressions, templates, tokens, unconfirmed, unsubscribes },
  ...{ attempts, audit, headers, health, replays, retention, rotation, tests, tracking, webhooks },
};

const errors = Object.entries(ERRORS).map(([code, error]) => ({ code, ...error }));

const errorsByStatus = [...Map.groupBy(errors, ({ status }) => status)]
  .sort(([a], [b]) => a - b)
  .map(([status, group]) => ({ status, reason: STATUS_CODES[status], errors: group }));

const errorTypes = [...Map.groupBy(errors, ({ type }) => type)].map(([name, group]) => ({
  name,
  statuses: [...new Set(group.map(({ status }) => status))].sort((a, b) => a - b),
}));

const routes = endpointsOf(appRouter).map(({ meta }) => meta);
/** The refusals of a send-preview, in the order of its checks. */
const gates = routes.find(({ path }) => path === "/newsletters/{newsletterId}/send-preview")?.errors ?? [];
const keyRequired = routes.filter(({ idempotency }) => idempotency === "required");

const PROOFS: Readonly<Record<ProviderNeed, string>> = {
  topicArn: "the signature of Amazon SNS",
  publicKey: "a signature; set its verification key",
  signingKey: "a signature; set its signing key",
  password: "a password in the address",
};

const listText = new Intl.ListFormat("en", { type: "conjunction" });

/**
 * The facts that guides name as `{{ … }}`: constants of the code and settings of this service, so that no guide types a
 * number that the code holds.
 * @param basePath of the REST API
 */
export function factsOf(env: Env, basePath: string) {
  const { origin } = new URL(env.PUBLIC_URL);
  const [, ...waits] = env.WEBHOOK_LADDER_SECONDS;
  return {
    ...MODULES,
    env,
    origin,
    base_path: basePath,
    base: origin + basePath,
    version: CURRENT_API_VERSION,
    versions: VERSIONS,
    merge_tags: MERGE_TAGS,
    filters: ALLOWED_FILTERS.toSorted(),
    date_parts: DATE_PARTS,
    roles: ROLES.toReversed(),
    /** Each with the least role that holds it. */
    scopes: SCOPES.map((name) => ({ name, role: ROLES.findLast((role) => roleHolds(role, name)) })),
    send_scopes: SEND_SCOPES,
    forbidden_pairs: FORBIDDEN_PAIRS,
    errors: ERRORS,
    errors_by_status: errorsByStatus,
    error_types: errorTypes,
    retried: errors.filter(({ retry }) => retry === "as_is"),
    gates,
    key_required: keyRequired.map(({ method, path }) => `${method} ${path}`),
    providers: Object.values(PROVIDERS).map(({ needs, ...provider }) => ({ ...provider, proof: PROOFS[needs] })),
    source_user: SOURCE_USER,
    bin: { BIN_DAYS, MOST_BINNED },
    threshold_percent: `${(complaints.COMPLAINT_THRESHOLD * 100).toFixed(2)} %`,
    catalogue: EVENT_NAMES.map((name) => ({ name, ...EVENTS[name] })),
    /** The attempts to deliver a webhook. */
    ladder: {
      attempts: env.WEBHOOK_LADDER_SECONDS.length,
      waits: listText.format(waits.map(durationText)),
      total: durationText(waits.reduce((sum, wait) => sum + wait, 0)),
    },
  };
}

export type Facts = ReturnType<typeof factsOf>;
