import type { Request, RequestHandler } from "express";
import { forTenant } from "../../../db/orm.ts";
import { requireRole } from "../../../domain/access/access.ts";
import { authenticateSession, type SessionRequest } from "../../../domain/access/sessions.ts";
import { actorOf, recordAct } from "../../../domain/audit/record.ts";
import { ApiError } from "../../../domain/errors.ts";
import { MAX_IMAGE_BYTES } from "../../../domain/images/clean.ts";
import { addImage, requireSharedStore } from "../../../domain/images/images.ts";
import type { Deps } from "../../deps.ts";
import { beforeDeadline, DEADLINE_MS } from "../../rest/deadline.ts";
import { localsOf, receiveBody } from "../../rest/http.ts";
import { noteCaller, takeTurn } from "../../rest/procedures.ts";
import { Turns } from "../../rest/turns.ts";
import { presentImage } from "./routes.ts";

/** Of a team in this process: each holds an image twice, before and after it is cleaned, and the event loop for its cleaning. */
const UPLOADS = new Turns(1);
const MAX_NAME = 200;

/** `POST /images?name=…`: the body is the file. An image of the same content is not stored again. */
export function imageUpload(deps: Deps, sessionOf: (req: Request) => SessionRequest): RequestHandler {
  const { env, orm, vault, limits, images } = deps;
  return async (req, res) => {
    const locals = localsOf(res);
    locals.route = "/console/images";
    const origin = { limits, clientAddress: locals.clientAddress, onCallerKnown: () => {} };
    const image = await beforeDeadline(DEADLINE_MS.write, async (pauseDeadline) => {
      const access = await authenticateSession(orm.em, vault, sessionOf(req), origin, null);
      noteCaller(locals, access);
      requireRole(access, "EDITOR");
      if (!images) {
        const message = "No images are stored here: the operator sets IMAGES_DIRECTORY or IMAGES_S3_URL.";
        throw new ApiError("resource_state_invalid", message);
      }
      await takeTurn("write", access, res);
      await UPLOADS.take(access.tenant.teamId, res);
      await requireSharedStore(orm.em.fork(), images);
      const content = await pauseDeadline(() => receiveBody(req, { mostBytes: MAX_IMAGE_BYTES }));
      const name = String(new URL(req.url, env.PUBLIC_URL).searchParams.get("name") ?? "").slice(0, MAX_NAME);
      const em = forTenant(orm.em, access.tenant);
      const { tenant, caller } = access;
      const act = { ...actorOf(caller), act: "images.upload", count: null, requestId: locals.requestId };
      return addImage(em, images, tenant, env, { name: name.replaceAll("\0", ""), content }, (tx, objectId) =>
        recordAct(tx, tenant, { ...act, objectId }),
      );
    });
    res.json(presentImage(deps, image));
  };
}
