import { router } from "../../rest/route.ts";

export const sequencesRouter = router({});
