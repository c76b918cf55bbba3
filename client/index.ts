export * from "./errors.ts";
export type * from "./generated.ts";
export { SERVICE_VERSION } from "./generated.ts";
export { Mailkeel } from "./mailkeel.ts";
export { Changes, type Listing } from "./pages.ts";
export type {
  Answer,
  ClientOptions,
  DryRun,
  DryRunOption,
  Meta,
  Page,
  PageMeta,
  RequestOptions,
  WriteOptions,
} from "./transport.ts";
export { type Delivery, verifyWebhook } from "./webhooks.ts";
