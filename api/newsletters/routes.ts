import { BROADCAST_STATUSES, Newsletter } from "../../db/entities/send.ts";
import { router } from "../rest/route.ts";
import { commandRouter } from "../sends/commands.ts";
import { draftRouter } from "../sends/drafts.ts";
import { linksRoute } from "../sends/links.ts";
import { recipientsRoute } from "../sends/recipients.ts";
import { sendRouter } from "../sends/routes.ts";
import { newsletterRecord, presentPreview, presentSend, wholeNewsletterRecord } from "./present.ts";
import {
  newsletter,
  newsletterBody,
  newsletterPatch,
  newsletterSend,
  newsletterSendPreview,
  newsletterWithRecipients,
} from "./schema.ts";

const kind = {
  ...({ type: "newsletter", noun: "Newsletter" } as const),
  entity: Newsletter,
  shown: { schema: newsletter, record: newsletterRecord },
};

export const newslettersRouter = router({
  drafts: draftRouter({
    ...kind,
    statuses: BROADCAST_STATUSES,
    limit: (env) => env.MAX_NEWSLETTERS,
    setInApp: "Its lists and its send days are set in the app; a key that is made for a list attaches that list.",
    elsewhere: { lists: "lists are attached in the app, or by a key that is made for a list" },
    body: newsletterBody,
    patch: newsletterPatch,
    whole: { schema: newsletterWithRecipients, record: wholeNewsletterRecord },
  }),
  commands: commandRouter(kind),
  links: linksRoute(kind),
  recipients: recipientsRoute({ ...kind, personScope: "subscribers:read" }),
  sends: sendRouter({
    ...kind,
    changes:
      "a subscriber joins or leaves a targeted list or the segment that narrows it, a suppression or an opt-out arrives, or the content or the sending account changes",
    preview: { schema: newsletterSendPreview, present: presentPreview },
    send: { schema: newsletterSend, present: presentSend },
  }),
});
