import { type Request, type Response, Router } from "express";
import { atMostOnceAMinute } from "../../config/log.ts";
import type { ReportProvider } from "../../db/entities/engagement.ts";
import { byOthers, claimFor } from "../../db/pool.ts";
import { brevoSource } from "../../domain/reports/brevo.ts";
import { mailgunSource } from "../../domain/reports/mailgun.ts";
import { mailjetSource } from "../../domain/reports/mailjet.ts";
import { postmarkSource } from "../../domain/reports/postmark.ts";
import { recordReports } from "../../domain/reports/record.ts";
import { resendSource } from "../../domain/reports/resend.ts";
import { SENDGRID } from "../../domain/reports/sendgrid.ts";
import { sesSource } from "../../domain/reports/ses.ts";
import { findSource, forged, pathOfProvider, type ReportSource, readSourceToken } from "../../domain/reports/source.ts";
import { sparkpostSource } from "../../domain/reports/sparkpost.ts";
import { logMove, type SendMove } from "../../domain/sends/send-log.ts";
import { recordReported } from "../../domain/tracking/record.ts";
import type { Deps } from "../deps.ts";
import { unavailable } from "../rest/failures.ts";
import { localsOf, receiveBody } from "../rest/http.ts";
import { Turns } from "../rest/turns.ts";

/**
 * Serves the webhooks by which providers report bounces and complaints. An answer of 2xx says that the reports are facts
 * now, or that there is nothing to do; providers give up on a 4xx, of a request that they did not sign, that is too large
 * or no JSON, and repeat it after a 429 or a 5xx.
 */
export function hookRouter({ env, orm, vault, log, limits, fetchText, unreadableEvents }: Deps): Router {
  const router = Router({ caseSensitive: true });
  /** The bodies of one webhook, one after the other: anyone who knows its URL could fill the memory with more. */
  const turns = new Turns(1);
  const rarely = atMostOnceAMinute();

  /** @param done the status that says so: Mailgun, Mailjet and Postmark repeat a request that got another one than 200 */
  function serve<Message>(provider: ReportProvider, reports: ReportSource<Message>, done: 200 | 204 = 200): void {
    const path = pathOfProvider(provider);
    router.post(`${path}/:token`, async (req: Request<{ token: string }>, res: Response) => {
      const locals = localsOf(res);
      locals.route = `${path}/{token}`;
      const em = orm.em.fork();
      // A process that started without Postgres gets the key of its hashes with its first connection.
      if (!vault.canHash()) await em.execute("select 1");
      const id = readSourceToken(vault, req.params.token);
      if (id !== undefined) {
        claimFor(id);
        await turns.take(id, res);
      }
      const source = id && (await findSource(em, provider, id));
      if (!source) throw forged("No provider's webhook has this URL.");
      claimFor(byOthers(source.teamId));
      locals.teamId = source.teamId;
      await limits.limitRequests(em, `hook/${source.id}`, env.PROVIDER_REQUESTS_PER_MINUTE);

      const request = { body: await receiveBody(req), header: (name: string) => req.get(name) };
      const message = await limits.limitFailures(em, source.id, () => reports.verify(request, source));
      await reports.confirm?.(em, message, source);
      const parsed = reports.parse(message);
      const unreadable = parsed.filter((report) => "unreadable" in report);
      if (unreadable.length > 0) {
        unreadableEvents(unreadable.length);
        const fields = unreadable[0]?.unreadable;
        rarely(`unreadable ${source.id}`, () =>
          log.error({ sourceId: source.id, fields }, "an event of a provider cannot be read"),
        );
      }
      const hits = parsed.flatMap((report) => ("machine" in report ? [report] : []));
      await recordReported(em, source, hits);
      const read = parsed.flatMap((report) => ("unreadable" in report || "machine" in report ? [] : [report]));
      const options = { tenant: source, onPause: (paused: SendMove) => logMove(log, paused) };
      const outcomes = await recordReports(em, read, env, options);
      if (outcomes.includes("not_mailed")) {
        rarely(source.id, () =>
          log.warn({ sourceId: source.id }, "a provider reports about mails that it did not get here"),
        );
      }
      if (outcomes.includes("unsettled"))
        throw unavailable(new Error("The outcome of a reported mail is not written yet"));
      // A later version may read it while the provider repeats the request.
      if (unreadable.length > 0) throw unavailable(new Error("An event about a mail cannot be read"));
      res.status(done).end();
    });
  }

  serve("SES", sesSource(fetchText), 204);
  serve("SENDGRID", SENDGRID, 204);
  serve("POSTMARK", postmarkSource(vault));
  serve("MAILGUN", mailgunSource(vault));
  serve("BREVO", brevoSource(vault));
  serve("RESEND", resendSource(vault));
  serve("MAILJET", mailjetSource(vault));
  serve("SPARKPOST", sparkpostSource(vault));
  return router;
}
