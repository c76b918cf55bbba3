import { z } from "zod";
import { orNotFound } from "../../../domain/errors.ts";
import { commandEndpoint } from "../../../domain/webhooks/commands.ts";
import { endpointRow } from "../../../domain/webhooks/endpoints.ts";
import { readDeliveryBody } from "../../../domain/webhooks/log.ts";
import { router } from "../../rest/route.ts";
import { deliveryParams, webhookParams } from "../../webhooks/schema.ts";
import { consoleMutation, consoleQuery } from "../procedure.ts";

/** Procedures of webhooks that the API does not have. */
export const webhooksRouter = router({
  /** Attempts the deliveries that wait for an endpoint now; it uses up none of their attempts. */
  retry: consoleMutation(
    { role: "ADMIN", input: z.strictObject({ params: webhookParams }), ownCommit: true },
    async ({ ctx, input: { params } }) => {
      orNotFound(await endpointRow(ctx.em, ctx.tenant, params.webhookId).executeTakeFirst());
      return { retried: await commandEndpoint(ctx.em, params.webhookId, "retryNow") };
    },
  ),

  body: consoleQuery(
    { role: "VIEWER", input: z.strictObject({ params: deliveryParams }) },
    async ({ ctx, input: { params } }) => ({
      body: await readDeliveryBody(ctx.em, ctx.tenant, params.webhookId, params.deliveryId),
    }),
  ),
});
