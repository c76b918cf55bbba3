import { type Request, type Response, Router } from "express";
import { atMostOnceAMinute } from "../../config/log.ts";
import type { ReportProvider } from "../../db/entities/engagement.ts";
import { recordReports } from "../../domain/reports/record.ts";
import { SENDGRID } from "../../domain/reports/sendgrid.ts";
import { sesSource } from "../../domain/reports/ses.ts";
import { findSource, forged, type ReportSource, SOURCE_PATHS } from "../../domain/reports/source.ts";
import { logMove } from "../../domain/sends/send-log.ts";
import { clientAddressesOf } from "../client-address.ts";
import type { Deps } from "../deps.ts";
import { unavailable } from "../rest/failures.ts";
import { localsOf, receiveBody, UPLOAD_LIMITS } from "../rest/http.ts";
import { Turns } from "../rest/turns.ts";

const refuseToken = async (): Promise<never> => {
  throw forged("No provider's webhook has this URL.");
};

/** Requests of one webhook that a process works on at once; others wait, with their bodies unread. */
const REQUESTS_AT_ONCE = 4;

/**
 * Serves the webhooks by which providers report bounces and complaints. An answer of 2xx says that the reports are facts
 * now, or that there is nothing to do; providers give up on a 4xx, of a request that they did not sign or that is too
 * large, and repeat it after a 429 or a 5xx.
 */
export function hookRouter({ env, orm, vault, log, limits, fetchText }: Deps): Router {
  const router = Router({ caseSensitive: true });
  const clientAddresses = clientAddressesOf(env);
  const turns = new Turns(REQUESTS_AT_ONCE);
  const rarely = atMostOnceAMinute();

  function serve<Message>(provider: ReportProvider, reports: ReportSource<Message>): void {
    const path = SOURCE_PATHS[provider];
    router.post(`${path}/:token`, async (req: Request<{ token: string }>, res: Response) => {
      const locals = localsOf(res);
      locals.route = `${path}/{token}`;
      const em = orm.em.fork();
      const clientAddress = clientAddresses.ofRequest(req);
      // Teams share a provider's addresses: a request that has a webhook's URL is not limited for the failures of others.
      const found = await findSource(em, vault, provider, req.params.token);
      const source = found ?? (await limits.limitFailures(em, clientAddress, refuseToken));
      locals.teamId = source.teamId;
      await limits.limitRequests(em, `hook/${source.id}`, env.PROVIDER_REQUESTS_PER_MINUTE);
      await turns.take(source.id, res);

      const request = { body: await receiveBody(req, UPLOAD_LIMITS), header: (name: string) => req.get(name) };
      const message = await limits.limitFailures(em, source.id, () => reports.verify(request, source));
      await reports.confirm?.(em, message, source);
      const outcomes = await recordReports(em, reports.parse(message), env, {
        tenant: source,
        onPause: (paused) => logMove(log, paused),
      });
      if (outcomes.includes("not_mailed")) {
        rarely(source.id, () =>
          log.warn({ sourceId: source.id }, "a provider reports about mails that it did not get here"),
        );
      }
      if (outcomes.includes("unsettled"))
        throw unavailable(new Error("The outcome of a reported mail is not written yet"));
      res.status(204).end();
    });
  }

  serve("SES", sesSource(fetchText));
  serve("SENDGRID", SENDGRID);
  return router;
}
