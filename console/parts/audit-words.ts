/** Verbs whose past is irregular, or that readers know by another word. */
const PAST: Readonly<Record<string, string>> = {
  ...{ cancel: "cancelled", mint: "created", retry: "retried", run: "ran", send: "sent", stop: "stopped" },
  ...{ undo: "undid", upsert: "created or changed" },
};

/** Where the name of a procedure would mislead; the record's kind follows. */
const OWN: Readonly<Record<string, string>> = {
  ...{ addListSubscribers: "added subscribers to", updateListSubscriber: "changed a subscription to" },
  ...{ removeListSubscriber: "removed a subscriber from", rotateWebhookSecret: "rotated the secret of" },
  ...{ "content.change": "changed the send settings of", "content.reschedule": "rescheduled" },
  ...{ "content.saveBlocks": "edited", "content.restoreVersion": "restored a version of" },
  ...{ "content.publish": "changed the web page of", "audience.archive": "changed the web archive of" },
  ...{ "content.attachList": "attached a list to", "content.detachList": "detached a list from" },
  ...{ "content.attachAccounts": "changed the accounts of", "audience.unsubscribe": "unsubscribed" },
  ...{
    "content.duplicate": "duplicated a record as",
    "content.editCopy": "cancelled a send and copied it as",
    "content.sendTest": "sent a test of",
  },
  ...{ "templates.makeDraft": "used a template for", "sequences.saveStep": "saved a step of" },
  "sequences.changeTracking": "changed the tracking of",
  ...{ "imports.export": "exported people as CSV from", "imports.export.list": "exported people as CSV from" },
  ...{
    "imports.export.people": "exported people as CSV from",
    "imports.export.contacts": "exported all contacts as CSV",
  },
  ...{ "imports.export.suppressions": "exported all suppressions as CSV", "people.file": "downloaded" },
  "imports.refused": "downloaded the rejected lines of",
  ...{ "imports.begin": "uploaded", "bin.restore": "restored", "team.invite": "invited" },
  ...{ "accounts.setCredentials": "changed the credentials of", "team.join": "joined by single sign-on as" },
  ...{ "team.changeRole": "changed the role of", "team.changeCap": "changed the limit of" },
  ...{ "team.renewConsoleKey": "renewed the console key of", "team.changeSettings": "changed the settings of" },
  "team.changeBrand": "changed the brand of",
};

/** An act, for the name of its record to follow: `createNewsletter` is "created the newsletter". @param kind of the record, where it is known */
export function wordsOf(act: string, kind = ""): string {
  const [record, own] = [kind && ` the ${kind}`, OWN[act]];
  if (act.includes(":")) return `ran the command ${act}${record && ` for${record}`}`;
  if (own) return record ? own + record : own.replace(/ (of|to|from|for|as)$/, "");
  const [name = "", resource = ""] = act.split(".").reverse();
  const [verb = "", ...nouns] = name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).split(" ");
  const past = PAST[verb] ?? verb.replace(/e?$/, "ed");
  const noun = nouns.join(" ") || resource.replace(/s$/, "");
  return past + (record || ` ${noun.endsWith("s") ? "" : /^[aeiou]/.test(noun) ? "an " : "a "}${noun}`);
}
