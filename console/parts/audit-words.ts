/** Verbs whose past is irregular, or that readers know by another word. */
const PAST: Readonly<Record<string, string>> = {
  ...{ cancel: "cancelled", mint: "created", retry: "retried", run: "ran", send: "sent", set: "set", stop: "stopped" },
  ...{ make: "made", undo: "undid", upsert: "created or changed" },
};

/** Where the name of a procedure would mislead. */
const OWN: Readonly<Record<string, string>> = {
  "content.change": "changed the send settings of",
  "content.reschedule": "rescheduled",
  "content.saveBlocks": "edited",
  "content.publish": "changed the web page of",
  "content.duplicate": "made as a duplicate",
  "audience.archive": "changed the web archive of",
  "imports.begin": "uploaded the file",
  "bin.restore": "restored",
  "team.invite": "invited member",
  "team.join": "joined by single sign-on as",
  "team.changeCap": "changed the limit of key",
};

/** An act in words that the name of its object may follow: `createNewsletter` is "created newsletter". */
export function wordsOf(act: string): string {
  if (act.includes(":")) return `ran the command ${act}`;
  const [name = "", resource = ""] = act.split(".").reverse();
  const [verb = "", ...nouns] = name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).split(" ");
  const past = PAST[verb] ?? verb.replace(/e?$/, "ed");
  return OWN[act] ?? [past, ...(nouns.length > 0 ? nouns : [resource.replace(/s$/, "")])].join(" ");
}
