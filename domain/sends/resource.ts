import type { ResourceType } from "../../db/entities/send.ts";

export type { ResourceType } from "../../db/entities/send.ts";

/** The resource that a send mails, as previews, sends and workflows know it. */
export interface SendResource {
  type: ResourceType;
  id: string;
}
