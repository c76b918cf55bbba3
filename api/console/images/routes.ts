import { z } from "zod";
import { deleteImage, listImages, readImageUsage, type StoredImage } from "../../../domain/images/images.ts";
import { imageUrl } from "../../../domain/images/links.ts";
import type { RequestContext } from "../../context.ts";
import { idParam, router } from "../../rest/route.ts";
import { consoleMutation, consoleQuery, noInput } from "../procedure.ts";

const PAGE = 60;

const imageParams = z.strictObject({ imageId: idParam });

export const presentImage = (
  { vault, env }: Pick<RequestContext, "vault" | "env">,
  { file, ...shown }: StoredImage,
) => ({ ...shown, url: imageUrl(vault, env.PUBLIC_URL, file) });

/** Images are uploaded by `POST /console/images`: a body of bytes is no input of a procedure. */
export const imagesRouter = router({
  /** A page, the newest first. @param before the last id of the page before */
  list: consoleQuery(
    { role: "VIEWER", input: z.strictObject({ query: z.strictObject({ before: idParam.optional() }) }) },
    async ({ ctx, input: { query } }) => {
      const images = await listImages(ctx.em, ctx.tenant, { ...query, limit: PAGE + 1 });
      return { images: images.slice(0, PAGE).map((each) => presentImage(ctx, each)), has_more: images.length > PAGE };
    },
  ),
  usage: consoleQuery({ role: "VIEWER", input: noInput }, ({ ctx }) => readImageUsage(ctx.em, ctx.tenant, ctx.env)),
  /** Mails that were sent lose it too. */
  remove: consoleMutation(
    {
      role: "EDITOR",
      isHeavy: true,
      input: z.strictObject({
        params: imageParams,
        body: z.strictObject({ although_used: z.boolean().default(false) }),
      }),
    },
    async ({ ctx, input: { params, body } }) => {
      await deleteImage(ctx.em, ctx.tenant, params.imageId, body.although_used);
      return {};
    },
  ),
});
