import { z } from "zod";
import { CONSENT_WAYS } from "../db/entities/audience.ts";
import { MAX_CONSENT_WORDS } from "../domain/audience/rules.ts";
import type { ConsentAnswer } from "../domain/audience/tracking-consents.ts";
import { address, oneLine, personName, shownAddress, shownNames, textOrNull, timestamp, timestamps } from "./fields.ts";
import { instant } from "./rest/instant.ts";

/** Clocks of clients and of this process differ. */
const CLOCK_SKEW_MS = 60_000;

const lastName = personName.meta({ examples: ["Lovelace"] });

const CONSENT = { granted: "GRANTED", denied: "DENIED" } as const;
const consentStatus = z
  .enum(Object.keys(CONSENT) as (keyof typeof CONSENT)[])
  .meta({ description: "Whether the person lets their opens and clicks be counted.", examples: ["granted"] });
const words = { description: "The text that the person was shown.", examples: ["May we count what you open?"] };

/** The person's answer about tracking, in a body; left out, their last answer stays. */
export const givenConsent = z
  .strictObject({
    status: consentStatus,
    words: oneLine(MAX_CONSENT_WORDS).trim().min(1).optional().meta(words),
    at: instant
      .refine((at) => at <= Date.now() + CLOCK_SKEW_MS, { error: "must not be in the future" })
      .optional()
      .meta({
        description: "When the person answered; now unless given. A grant lifts a denial only with a later `at`.",
        examples: ["2026-11-21T17:00:00.000Z"],
      }),
  })
  .transform(
    ({ status, at, words }): ConsentAnswer => ({
      status: CONSENT[status],
      words,
      at: at === undefined ? undefined : new Date(at),
    }),
  )
  .optional()
  .meta({
    description: "The person's answer about tracking. It belongs to the address. Left out, their last answer stays.",
  });

export const personBody = {
  email: address,
  first_name: personName.default(null),
  last_name: lastName.default(null),
  tracking_consent: givenConsent,
};

/** The same where a field that is left out stays as it is. */
export const personPatch = {
  email: address.optional(),
  first_name: personName.optional(),
  last_name: lastName.optional(),
  tracking_consent: givenConsent,
};

/** The fields of a subscriber or a contact in an answer, besides its kind and id. */
export const shownPerson = {
  email: shownAddress,
  ...shownNames,
  ...timestamps,
  tracking_consent: z
    .object({
      status: consentStatus,
      at: timestamp,
      way: z.enum(CONSENT_WAYS.map((way) => way.toLowerCase() as Lowercase<typeof way>)).meta({
        description:
          "`page`: behind the link in a mail. `member`: a member of the team noted it in the console. `form`: at a sign-up.",
        examples: ["page"],
      }),
      words: textOrNull(words.description, "May we count what you open?"),
    })
    .meta({ id: "TrackingConsent", description: "The last answer of the person at an address about tracking." })
    .nullable()
    .meta({
      description: "Whether their opens and clicks may be counted, by their last answer; null before the first.",
      examples: [null],
    }),
};
