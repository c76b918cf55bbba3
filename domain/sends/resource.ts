/** The kinds of resource that a send mails. */
export type ResourceType = "newsletter";

/** The resource that a send mails, as previews, sends and workflows know it. */
export interface SendResource {
  type: ResourceType;
  id: string;
}
