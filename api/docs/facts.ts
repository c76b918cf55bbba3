import { STATUS_CODES } from "node:http";
import type { Env } from "../../config/env.ts";
import { ROLES } from "../../db/entities/team.ts";
import { REMEMBERED_HOURS, STALLED_SECONDS } from "../../domain/access/idempotency.ts";
import { DEFAULT_DAILY_SEND_CAP } from "../../domain/access/keys.ts";
import { WINDOW_SECONDS } from "../../domain/access/request-limit.ts";
import { FORBIDDEN_PAIRS, roleHolds, SCOPES, SEND_SCOPES } from "../../domain/access/scopes.ts";
import { MAX_ADDRESS_LENGTH } from "../../domain/address.ts";
import { DEFAULT_DAYS, MAX_DAYS } from "../../domain/analytics/overview.ts";
import { CURRENT_API_VERSION, VERSIONS } from "../../domain/api-version.ts";
import { ADDRESS_WINDOW_DAYS } from "../../domain/audience/confirmation-limits.ts";
import { MAX_FIELDS } from "../../domain/audience/contact-fields.ts";
import { MAX_FIELD_TEXT_LENGTH, MAX_NAME_LENGTH } from "../../domain/audience/rules.ts";
import { ERRORS } from "../../domain/errors.ts";
import { MERGE_TAGS } from "../../domain/mail/template.ts";
import { COMPLAINT_THRESHOLD, COMPLAINT_WINDOW_DAYS } from "../../domain/sends/complaint-rate.ts";
import { MAX_CAMPAIGN_ACCOUNTS } from "../../domain/sends/drafts.ts";
import { TOKEN_LIFETIME_SECONDS } from "../../domain/sends/token.ts";
import { MAX_ENDPOINTS } from "../../domain/teams/plans.ts";
import { DEFAULT_PER_SECOND } from "../../domain/webhooks/bulk-replay.ts";
import { EVENT_NAMES, EVENTS } from "../../domain/webhooks/catalogue.ts";
import { MAX_BODY_MS, MAX_KEPT_BYTES, MAX_RETRY_AFTER_SECONDS } from "../../domain/webhooks/classify.ts";
import {
  FAILING_AFTER,
  FIRST_PROBE_SECONDS,
  LONGEST_PROBE_SECONDS,
  LONGEST_PROBE_SECONDS_LATER,
  SWITCH_OFF_FAILURES,
  SWITCH_OFF_HOURS,
} from "../../domain/webhooks/endpoint-health.ts";
import { MAX_HEADERS, MAX_TOTAL_BYTES, MAX_VALUE_LENGTH } from "../../domain/webhooks/headers.ts";
import { DELIVERY_KEPT_DAYS, EVENT_KEPT_DAYS } from "../../domain/webhooks/retention.ts";
import { DEFAULT_OVERLAP_HOURS } from "../../domain/webhooks/rotate.ts";
import { TESTS_PER_MINUTE } from "../../domain/webhooks/test-delivery.ts";
import { MAX_BULK } from "../contacts/schema.ts";
import { MAX_BATCH as MAX_SUBSCRIBERS } from "../lists/schema.ts";
import { DEADLINE_MS, LARGE_BODIES_AT_ONCE } from "../rest/adapter.ts";
import { endpointsOf } from "../rest/endpoints.ts";
import { MAX_BODY_BYTES, PLAIN_ANSWER_BYTES, SMALL_BODY_BYTES, UPLOAD_LIMITS } from "../rest/http.ts";
import { MAX_IDEMPOTENCY_KEY_LENGTH } from "../rest/idempotency.ts";
import { MAX_BODY_VALUES, MAX_DEPTH } from "../rest/input.ts";
import { DEFAULT_LIMIT, MAX_CURSOR_LENGTH, MAX_LIMIT, MAX_PAGE_BYTES } from "../rest/list.ts";
import { CALLERS_OF_A_TEAM, TURNS_OF_A_CALLER } from "../rest/procedures.ts";
import { appRouter } from "../router.ts";
import { MAX_BODY_BYTES as MAX_NEWSLETTER_BYTES, MAX_SUBJECT_LENGTH } from "../sends/schema.ts";
import { MAX_BATCH as MAX_SUPPRESSIONS } from "../suppressions/schema.ts";
import { durationText } from "../units.ts";
import { MAX_EVENTS, MAX_URL_LENGTH, MIN_URL_LENGTH } from "../webhooks/schema.ts";

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

const list = new Intl.ListFormat("en", { type: "conjunction" });

/**
 * The facts that guides name as `{{ … }}`: constants of the code and settings of this service, so that no guide types a
 * number that the code holds. Durations are in the unit of their name, sizes in bytes.
 * @param basePath of the REST API
 */
export function factsOf(env: Env, basePath: string) {
  const { origin } = new URL(env.PUBLIC_URL);
  const [, ...waits] = env.WEBHOOK_LADDER_SECONDS;
  return {
    origin,
    base_path: basePath,
    base: origin + basePath,
    version: CURRENT_API_VERSION,
    versions: VERSIONS,
    merge_tags: MERGE_TAGS,
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
    rate: {
      per_minute: env.RATE_LIMIT_PER_MINUTE,
      failures_per_minute: env.FAILED_AUTHENTICATIONS_PER_MINUTE,
      window_seconds: WINDOW_SECONDS,
    },
    page: {
      default_limit: DEFAULT_LIMIT,
      max_limit: MAX_LIMIT,
      cursor_chars: MAX_CURSOR_LENGTH,
      bytes: MAX_PAGE_BYTES,
      plain_bytes: PLAIN_ANSWER_BYTES,
    },
    body: {
      bytes: MAX_BODY_BYTES,
      values: MAX_BODY_VALUES,
      depth: MAX_DEPTH,
      small_bytes: SMALL_BODY_BYTES,
      large_at_once: LARGE_BODIES_AT_ONCE,
      stalled_seconds: UPLOAD_LIMITS.stalledMs / 1_000,
      total_seconds: UPLOAD_LIMITS.totalMs / 1_000,
    },
    deadlines: { read_seconds: DEADLINE_MS.read / 1_000, send_seconds: DEADLINE_MS.workflow / 1_000 },
    turns: { ...TURNS_OF_A_CALLER, callers_of_a_team: CALLERS_OF_A_TEAM },
    connections: { per_address: env.MAX_CONNECTIONS_PER_ADDRESS },
    idempotency: {
      max_chars: MAX_IDEMPOTENCY_KEY_LENGTH,
      remembered_hours: REMEMBERED_HOURS,
      stalled_seconds: STALLED_SECONDS,
      required: keyRequired.map(({ method, path }) => `${method} ${path}`),
    },
    contacts: { fields: MAX_FIELDS, text_chars: MAX_FIELD_TEXT_LENGTH },
    batches: { contacts: MAX_BULK, subscribers: MAX_SUBSCRIBERS, suppressions: MAX_SUPPRESSIONS },
    address_chars: MAX_ADDRESS_LENGTH,
    newsletters: {
      name_chars: MAX_NAME_LENGTH,
      subject_chars: MAX_SUBJECT_LENGTH,
      body_bytes: MAX_NEWSLETTER_BYTES,
    },
    campaigns: { accounts: MAX_CAMPAIGN_ACCOUNTS },
    records: {
      lists: env.MAX_LISTS,
      newsletters: env.MAX_NEWSLETTERS,
      campaigns: env.MAX_CAMPAIGNS,
      keys: env.MAX_API_KEYS,
      webhooks: MAX_ENDPOINTS,
    },
    default_send_cap: DEFAULT_DAILY_SEND_CAP,
    complaints: {
      window_days: COMPLAINT_WINDOW_DAYS,
      threshold_percent: `${(COMPLAINT_THRESHOLD * 100).toFixed(2)} %`,
    },
    analytics: { max_days: MAX_DAYS, default_days: DEFAULT_DAYS },
    token_seconds: TOKEN_LIFETIME_SECONDS,
    deferral_window_seconds: env.DEFERRAL_WINDOW_SECONDS,
    confirmations: {
      per_address: env.CONFIRMATIONS_PER_ADDRESS,
      per_team: env.CONFIRMATIONS_PER_TEAM,
      window_days: ADDRESS_WINDOW_DAYS,
    },
    webhooks: {
      catalogue: EVENT_NAMES.map((name) => ({ name, ...EVENTS[name] })),
      min_url_chars: MIN_URL_LENGTH,
      max_url_chars: MAX_URL_LENGTH,
      events: MAX_EVENTS,
      headers: MAX_HEADERS,
      header_chars: MAX_VALUE_LENGTH,
      header_bytes: MAX_TOTAL_BYTES,
      tests_per_minute: TESTS_PER_MINUTE,
      timeout_seconds: env.WEBHOOK_TIMEOUT_MS / 1_000,
      body_seconds: MAX_BODY_MS / 1_000,
      kept_bytes: MAX_KEPT_BYTES,
      retry_after: durationText(MAX_RETRY_AFTER_SECONDS),
      attempts: env.WEBHOOK_LADDER_SECONDS.length,
      waits: list.format(waits.map(durationText)),
      total: durationText(waits.reduce((sum, wait) => sum + wait, 0)),
      failing_after: FAILING_AFTER,
      first_probe_seconds: FIRST_PROBE_SECONDS,
      longest_probe: durationText(LONGEST_PROBE_SECONDS),
      longest_probe_later: durationText(LONGEST_PROBE_SECONDS_LATER),
      switch_off_hours: SWITCH_OFF_HOURS,
      switch_off_failures: SWITCH_OFF_FAILURES,
      overlap_hours: DEFAULT_OVERLAP_HOURS,
      replays_per_second: DEFAULT_PER_SECOND,
      delivery_days: DELIVERY_KEPT_DAYS,
      event_days: EVENT_KEPT_DAYS,
    },
  };
}

export type Facts = ReturnType<typeof factsOf>;
