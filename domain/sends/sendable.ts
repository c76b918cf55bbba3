import { campaign } from "./campaign.ts";
import type { Sendable } from "./draft.ts";
import { newsletter } from "./newsletter.ts";
import type { ResourceType, SendResource } from "./resource.ts";

/** A new kind of resource that can be sent is a module of its own with an entry here. */
const SENDABLES: Record<ResourceType, Sendable> = { newsletter, campaign };

export const sendable = ({ type }: SendResource): Sendable => SENDABLES[type];
