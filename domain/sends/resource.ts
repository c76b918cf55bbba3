import type { ResourceType } from "../../db/entities/send.ts";
import type { Scope } from "../access/scopes.ts";

export type { ResourceType } from "../../db/entities/send.ts";

/** The resource that a send mails, as previews, sends and workflows know it. */
export interface SendResource {
  type: ResourceType;
  id: string;
}

/** A mail that is shown or tested: of a newsletter or campaign, or of a step of a sequence. */
export interface MailResource extends SendResource {
  stepId?: string | undefined;
}

/** Whose rules decide who may be mailed. */
export type MailingRules = ResourceType | "list_sequence";

/** The scope of a key that may send the resource. */
export const sendScope = ({ type }: SendResource): Scope => `${type}s:send`;
