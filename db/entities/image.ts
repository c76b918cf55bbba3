import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, instant, tenancy, tenantFilters, text } from "./shared.ts";

/** An image that a member has uploaded, once for each content. */
export const ImageSchema = defineEntity({
  name: "images",
  filters: tenantFilters,
  uniques: [{ properties: ["teamId", "environment", "sha256"] }],
  indexes: [{ properties: ["teamId", "environment", "id"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    /** Of the stored bytes, in hex. */
    sha256: code(),
    /** In the store, see `domain/images/links.ts`. */
    file: code(),
    /** Of the member's file, or as they renamed it. */
    name: text("team"),
    bytes: p.integer(),
    /** In pixels. */
    width: p.integer(),
    height: p.integer(),
    createdAt: instant().defaultRaw("now()"),
  },
});

/** Files of the store that no image has: maintenance deletes them. A trigger writes those of deleted images, and of deleted teams. */
export const UnusedImageFileSchema = defineEntity({
  name: "unused_image_files",
  indexes: [{ properties: ["dueAt"] }],
  properties: {
    file: code().primary(),
    attempts: p.integer().default(0),
    dueAt: instant().defaultRaw("now()"),
  },
});
