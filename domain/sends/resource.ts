/** The kinds of resource that a send mails. */
export const RESOURCE_TYPES = ["newsletter"] as const;
export type ResourceType = (typeof RESOURCE_TYPES)[number];

/** The resource that a send mails, as previews, sends and workflows know it. */
export interface SendResource {
  type: ResourceType;
  id: string;
}
