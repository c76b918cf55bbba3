import { defineSearchAttributeKey, SearchAttributeType } from "@temporalio/common";

/** Operators search workflows by these. The embedded stack registers them; so must a cluster, see docs/operations/deploy.md. */
export const TEAM_ID = defineSearchAttributeKey("TeamId", SearchAttributeType.KEYWORD);
export const RESOURCE_ID = defineSearchAttributeKey("ResourceId", SearchAttributeType.KEYWORD);
export const WEBHOOK_ID = defineSearchAttributeKey("WebhookId", SearchAttributeType.KEYWORD);
export const SEND_STATUS = defineSearchAttributeKey("SendStatus", SearchAttributeType.KEYWORD);
export const NEEDS_OPERATOR = defineSearchAttributeKey("NeedsOperator", SearchAttributeType.BOOL);
