/** The page behind the URL in the `User-Agent` of webhook deliveries, for the operator of a server that gets them. */
export const WEBHOOKS_PAGE = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Webhook deliveries</title>
<style>
  body { margin: 2rem auto; max-width: 45rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; color: #222; }
</style>
<h1>Webhook deliveries</h1>
<p>Requests with the <code>User-Agent</code> <code>Mailkeel-Webhooks/1</code> are webhooks: a customer of this service
registered the URL and subscribed to events of their own newsletters. Each is a POST with a JSON body.</p>
<ul>
<li>Every request carries <code>X-Service-Signature</code>. Only its receiver, who holds the endpoint's secret, can check
that a request comes from here: the <code>User-Agent</code> proves nothing.</li>
<li><code>X-Service-Webhook-Id</code> names the endpoint. Give it to this service's operator if you did not ask for these
requests.</li>
<li>A 2xx answer ends a delivery, and so does a 4xx other than 408 and 429; after any other answer it is tried again. An
endpoint to which nothing could be delivered for 72 hours, with at least 20 failures in a row, is switched off.</li>
</ul>
`;
