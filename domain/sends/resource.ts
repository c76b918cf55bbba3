/** The kinds of resource that a send mails. */
export const RESOURCE_TYPES = ["newsletter"] as const;
export type ResourceType = (typeof RESOURCE_TYPES)[number];

/** The resource that a send mails: what previews, sends, workflows and the ledger know of it. */
export interface SendResource {
  type: ResourceType;
  id: string;
}
