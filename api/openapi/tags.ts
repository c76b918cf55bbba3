/** The groups of operations in the document, in its order, each with its description. */
export const TAGS = {
  Identity: "The API key that a request carries.",
  Lists: "Lists of subscribers. The opt-in setting of a list decides how a subscription starts.",
  Forms: "Sign-up forms for websites, each of a list. They are made in the app and read here.",
  Subscribers: "People with an email address, and their subscriptions to lists.",
  Contacts:
    "People whom campaigns mail, with custom fields that the team declares in the app. One address may be a contact and a subscriber.",
  Newsletters:
    "One-off mails to the subscribers of lists. Through the API a newsletter is drafted, and sent by two calls: a preview, and a confirmation with the token of that preview.",
  Campaigns:
    "Mails to the contacts of a segment, over one or several sending accounts. Drafted and sent as newsletters are; the segment and the accounts are attached in the app.",
  Suppressions:
    "The team's do-not-mail list. Every send leaves out its addresses; it deletes nothing. Opt-outs are here too.",
  "Sending accounts":
    "The mailboxes and SMTP relays that mails leave from. They are connected in the app and read here.",
  Webhooks: "Endpoints that get signed events by HTTP POST, and the log of their deliveries.",
  Analytics: "Outcomes of the mails: counts and rates per day.",
  Usage: "How much the team and the key have used of their limits.",
} as const satisfies Record<string, string>;

/** The first segments of the paths of groups that are called otherwise. */
const SEGMENTS: Readonly<Record<string, keyof typeof TAGS>> = {
  me: "Identity",
  unsubscribes: "Suppressions",
  accounts: "Sending accounts",
};

/** The group of an operation, by the first segment of its path. @throws {Error} for a segment that has none */
export function tagOf(path: string): string {
  const [, segment = ""] = path.split("/");
  const tag = SEGMENTS[segment] ?? segment.replace(/^./, (letter) => letter.toUpperCase());
  if (!Object.hasOwn(TAGS, tag)) throw new Error(`${path} belongs to no tag`);
  return tag;
}
