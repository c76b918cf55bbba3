import type { AttemptOutcome } from "./outcomes.ts";

/** Why an attempt got no answer, as a code that may stand in a workflow's history. */
export type FailureCode =
  | "timeout"
  | "name_not_resolved"
  | "connect_refused"
  | "unreachable"
  | "tls"
  | "reset"
  | "protocol";

/** The endpoint answered with any status; its body may be incomplete. */
export interface Answered {
  kind: "answered";
  status: number;
  /** Valid UTF-8 without NUL, at most `MAX_KEPT_BYTES` of it. */
  body: string;
  /** Why the body is incomplete or cannot be read, for the log of the endpoint's owner. */
  bodyProblem?: string;
  /** Whole seconds from now, as the endpoint gave it. */
  retryAfterSeconds?: number;
  durationMs: number;
}

/** The attempt was made and got no status. The message is for the log of the endpoint's owner. */
export interface Failed {
  kind: "failed";
  code: FailureCode;
  message: string;
  durationMs: number;
}

/** No request was sent: the address guard refuses the URL. */
export interface Blocked {
  kind: "blocked";
  reason: string;
  message: string;
  durationMs: number;
}

export type Answer = Answered | Failed | Blocked;

/** Bytes of an answer's body that are kept at most. */
export const MAX_KEPT_BYTES = 16_384;
/** How long the body is read at most: the status has decided, and an endless body must not hold up other requests. */
export const MAX_BODY_MS = 3_000;
/** The longest wait an endpoint can ask for. */
export const MAX_RETRY_AFTER_SECONDS = 3600;

const REQUEST_TIMEOUT = 408;
const TOO_MANY_REQUESTS = 429;
const SERVICE_UNAVAILABLE = 503;

export interface ClassifiedAttempt {
  outcome: Omit<AttemptOutcome, "id">;
  /** A code that may stand in a workflow's history; undefined for a success. */
  reason?: string;
  /** How long the endpoint asked to wait. */
  retryAfterMs: number;
}

/**
 * The outcome of an answer: 2xx is a success; 4xx except 408 and 429 is final; all else is tried again
 * unless it was the last attempt. The status decides, also when the body was cut off or could not be read.
 * @param isTest of a test delivery: other deliveries neither wait nor count failures because of it
 */
export function classifyAttempt(answer: Answer, last: boolean, isTest = false): ClassifiedAttempt {
  const { durationMs } = answer;
  const base = { isTest, responseStatus: null, responseBody: null, errorMessage: null, durationMs };
  const failed = last ? "FAILED" : "RETRYING";
  if (answer.kind === "blocked") {
    return {
      outcome: { ...base, status: "BLOCKED", errorMessage: answer.message },
      reason: answer.reason,
      retryAfterMs: 0,
    };
  }
  if (answer.kind === "failed") {
    return {
      outcome: { ...base, status: failed, errorMessage: answer.message },
      reason: answer.code,
      retryAfterMs: 0,
    };
  }
  const { status, body, bodyProblem = null } = answer;
  const answered = { ...base, responseStatus: status, responseBody: body, errorMessage: bodyProblem };
  if (status >= 200 && status < 300) return { outcome: { ...answered, status: "SUCCEEDED" }, retryAfterMs: 0 };
  const final = status >= 400 && status < 500 && status !== REQUEST_TIMEOUT && status !== TOO_MANY_REQUESTS;
  const mayAskToWait = !isTest && (status === TOO_MANY_REQUESTS || status === SERVICE_UNAVAILABLE);
  const errorMessage = [explain(status, final), bodyProblem].filter((part) => part !== null).join(" ");
  return {
    outcome: { ...answered, status: final ? "FAILED" : failed, errorMessage },
    reason: `http_${status}`,
    retryAfterMs: mayAskToWait ? Math.min(answer.retryAfterSeconds ?? 0, MAX_RETRY_AFTER_SECONDS) * 1000 : 0,
  };
}

const JITTER = 0.2;

/**
 * The wait before an attempt, in ms: give or take a fifth, so that deliveries which failed together are not all retried together.
 * @param random 0 to 1
 */
export const jittered = (waitMs: number, random: number): number =>
  Math.round(waitMs * (1 - JITTER + 2 * JITTER * random));

function explain(status: number, final: boolean): string {
  if (status >= 300 && status < 400) return `Answered with ${status}: redirects are not followed.`;
  return final ? `Answered with ${status}: not tried again.` : `Answered with ${status}.`;
}
