import type { ResourceType } from "../../db/entities/send.ts";
import type { Scope } from "../access/scopes.ts";

export type { ResourceType } from "../../db/entities/send.ts";

/** The resource that a send mails, as previews, sends and workflows know it. */
export interface SendResource {
  type: ResourceType;
  id: string;
  /** Of a wave: the list whose confirmed subscribers the sequence mails; null of one that mails contacts. */
  listId?: string | null;
}

/** Whose rules decide who may be mailed. */
export type MailingRules = ResourceType | "list_sequence";

export const rulesOf = ({ type, listId }: SendResource): MailingRules => (listId ? "list_sequence" : type);

/** Its recipients are subscribers, and not contacts. */
export const mailsSubscribers = (resource: SendResource): boolean => rulesOf(resource) !== "campaign";

/** The scope of a key that may send the resource. */
export const sendScope = ({ type }: SendResource): Scope => `${type}s:send`;
